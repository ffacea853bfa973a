"""The schema of PostgreSQL: where the tables are, and that two of them have nothing in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import pytest

from tenure.errors import InvalidArgument
from tenure.store.failure import SchemaError
from tenure.store.location import make_store
from tenure.store.postgres import PostgresStore
from tenure.store.table import retention
from tenure.store.transaction import Tx
from tests.polling import eventually
from tests.postgres import PostgresServer
from tests.store.rows import insert, live, pending

# The tests' role has the name of the default schema, so that their own SQL finds it. Not here.
PATH: Final = "&search_path=public"
TABLES: Final = (
    "SELECT DISTINCT table_schema FROM information_schema.tables WHERE table_name = 'tasks' "
    "ORDER BY 1"
)


@pytest.fixture
def bare_dsn(postgres: PostgresServer) -> str:
    """Return the URL of an empty database whose sessions look in ``public`` alone."""
    return postgres.dsn(postgres.create_database()) + PATH


@asynccontextmanager
async def opened(
    dsn: str, *, schema: str = "", pooled: bool = False
) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn, schema=schema, pooled=pooled)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def fetch(dsn: str, sql: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return [row[0] for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_a_new_database_gets_its_tables_in_the_schema_tenure(bare_dsn: str) -> None:
    async with opened(bare_dsn) as store:
        await insert(store, pending(1))
    assert await fetch(bare_dsn, TABLES) == ["tenure"]
    assert await fetch(bare_dsn, "SELECT count(*) FROM tenure.tasks") == [1]


async def test_an_installation_in_public_goes_on(bare_dsn: str) -> None:
    async with opened(bare_dsn, schema="public") as store:
        await insert(store, pending(1))
    for _ in range(2):
        async with opened(bare_dsn) as store:
            assert await live(store, 1) == [pending(1)]
    assert await fetch(bare_dsn, TABLES) == ["public"]


async def test_an_installation_where_the_search_path_leads_goes_on(bare_dsn: str) -> None:
    dsn = bare_dsn.replace(PATH, "&search_path=nowhere,mine,public")
    async with opened(dsn, schema="mine") as store:
        await insert(store, pending(1))
    async with opened(dsn, schema="public"), opened(dsn) as store:
        assert await live(store, 1) == [pending(1)]


async def test_tables_of_others_are_no_installation(bare_dsn: str) -> None:
    await fetch(bare_dsn, "CREATE TABLE public.schema_migrations (version text)")
    async with opened(bare_dsn):
        assert await fetch(bare_dsn, TABLES) == ["tenure"]


async def test_of_two_installations_one_has_to_be_named(bare_dsn: str) -> None:
    for schema in ("tenure", "public"):
        async with opened(bare_dsn, schema=schema):
            pass
    with pytest.raises(SchemaError, match=r"schemas public and tenure .* --schema"):
        await PostgresStore(bare_dsn).open()
    async with opened(bare_dsn, schema="tenure"):
        pass


async def test_a_role_that_may_not_make_the_schema_uses_the_one_that_is_there(
    postgres: PostgresServer,
) -> None:
    name = postgres.create_database()
    admin, dsn = postgres.dsn(name), postgres.dsn(name).replace("tenure@", "limited@")
    await fetch(admin, "CREATE ROLE limited LOGIN")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await PostgresStore(dsn).open()
    await fetch(admin, "CREATE SCHEMA tenure AUTHORIZATION limited")
    async with opened(dsn) as store:
        await insert(store, pending(1))
    assert await fetch(admin, "SELECT count(*) FROM tenure.tasks") == [1]


@pytest.mark.parametrize("pooled", [False, True])
async def test_two_schemas_of_one_database_do_not_see_each_others_rows(
    bare_dsn: str, pooled: bool
) -> None:
    async with (
        opened(bare_dsn, schema="first", pooled=pooled) as first,
        opened(bare_dsn, schema="second", pooled=pooled) as second,
    ):
        await insert(first, pending(1), pending(2))
        assert await live(second, 1, 2) == []
        await insert(second, pending(2, type="other"))
        assert await live(first, 2) == [pending(2)]
        assert await live(second, 2) == [pending(2, type="other")]


async def test_two_schemas_of_one_database_do_not_drop_each_others_days(bare_dsn: str) -> None:
    days = "SELECT count(*) FROM pg_tables WHERE schemaname = '{}' AND tablename ~ '_[0-9]+$'"
    async with opened(bare_dsn, schema="first") as first, opened(bare_dsn, schema="second"):
        before = await fetch(bare_dsn, days.format("first"))
        assert before == await fetch(bare_dsn, days.format("second")) != [0]

        async def forget(tx: Tx) -> None:
            await retention.keep_days(tx, first=10**6, today=10**6, last=10**6)

        await first.transaction(forget)
        assert await fetch(bare_dsn, days.format("first")) == [3]
        assert await fetch(bare_dsn, days.format("second")) == before


async def test_two_schemas_of_one_database_do_not_hear_each_other(bare_dsn: str) -> None:
    async with (
        opened(bare_dsn, schema="first") as first,
        opened(bare_dsn, schema="first") as beside,
        opened(bare_dsn, schema="second") as second,
        opened(bare_dsn, schema="second") as other,
    ):
        heard: dict[str, list[str]] = {"first": [], "second": []}
        first.listen(heard["first"].append)
        second.listen(heard["second"].append)
        await beside.notify("one")
        await other.notify("two")
        await eventually(lambda: all(heard.values()), "both have heard")
        # Whatever PostgreSQL delivers comes in the order of the commits.
        await beside.notify("three")
        await other.notify("four")
        await eventually(lambda: all(len(each) > 1 for each in heard.values()), "both again")
        assert heard == {"first": ["one", "three"], "second": ["two", "four"]}


async def test_servers_of_the_version_before_are_heard_in_public(bare_dsn: str) -> None:
    heard: list[str] = []
    async with opened(bare_dsn, schema="public") as store:
        store.listen(heard.append)
        await fetch(bare_dsn, "SELECT pg_notify('tenure', 'hint')")
        await eventually(lambda: heard == ["hint"], "the hint of an earlier server")


@pytest.mark.parametrize("name", ["1st", "a b", 'a"b', "a'b", "a.b", "-a", "x" * 57])
def test_what_is_no_name_of_a_schema_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="schema must be a name") as refused:
        PostgresStore("postgresql://tenure@db/tenure", schema=name)
    assert refused.value.fields["field"] == "schema"


@pytest.mark.parametrize("name", ["pg_catalog", "pg_mine", "information_schema"])
def test_a_schema_of_postgresql_itself_is_refused(name: str) -> None:
    with pytest.raises(
        InvalidArgument, match=f"{name} is a schema of PostgreSQL itself"
    ) as refused:
        PostgresStore("postgresql://tenure@db/tenure", schema=name)
    assert refused.value.fields["field"] == "schema"


def test_a_file_has_no_schema() -> None:
    with pytest.raises(InvalidArgument, match="SQLite file has no schemas"):
        make_store("sqlite:///tenure.db", clock=lambda: 0, schema="tenure")
