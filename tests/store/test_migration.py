"""The migration runner: numbered, forward only, safe when several servers start at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg
import pytest

from tenure.store import migration
from tenure.store.failure import SchemaError
from tenure.store.migration import Applied, Migration
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Store, Tx
from tests.postgres import PostgresServer
from tests.store.rows import NOW, insert, live, pending

Execute = Callable[[str], Awaitable[None]]
FIRST = Migration(1, "initial", "CREATE TABLE a (b integer)", is_breaking=False)
SECOND = Migration(2, "grow", "CREATE TABLE c (d integer)", is_breaking=False)


class Schema:
    """A database whose schema a test tampers with between two starts."""

    def __init__(self, make: Callable[[], Store], execute: Execute) -> None:
        self._make = make
        self.execute = execute

    async def start(self) -> list[Applied]:
        """Open a store, close it, and return what was applied by then."""
        store = self._make()
        try:
            await store.open()
            return await store.read(_applied)
        finally:
            await store.close()


async def _applied(tx: Tx) -> list[Applied]:
    rows = await tx.one("list_migrations")
    return [Applied(*row) for row in rows]  # type: ignore[arg-type]  # columns of our own table


@pytest.fixture(params=["sqlite", "postgres"])
def schema(request: pytest.FixtureRequest, tmp_path: Path) -> Schema:
    if request.param == "sqlite":
        path = str(tmp_path / "tenure.db")

        async def run_here(sql: str) -> None:
            connection = apsw.Connection(path)
            connection.execute(sql)
            connection.close()

        return Schema(lambda: SqliteStore(path, clock=lambda: NOW), run_here)
    postgres: PostgresServer = request.getfixturevalue("postgres")
    dsn = postgres.dsn(postgres.create_database())

    async def run_there(sql: str) -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(sql)
        await connection.close()

    return Schema(lambda: PostgresStore(dsn), run_there)


async def test_a_fresh_database_gets_every_migration_in_order(schema: Schema) -> None:
    applied = await schema.start()
    assert [each.number for each in applied] == list(range(1, len(applied) + 1))
    assert applied


async def test_a_second_start_applies_nothing_again(schema: Schema) -> None:
    first = await schema.start()
    assert await schema.start() == first


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(schema: Schema) -> None:
    await schema.start()
    await schema.execute("UPDATE schema_migrations SET checksum = 'other' WHERE number = 1")
    with pytest.raises(SchemaError, match=r"Migration 1 \(initial\) was changed"):
        await schema.start()


async def test_a_newer_breaking_schema_is_refused(schema: Schema) -> None:
    await schema.start()
    await schema.execute("INSERT INTO schema_migrations VALUES (900, 'split', 'x', true, 0)")
    with pytest.raises(SchemaError, match=r"schema 900 \(split\).*Start a newer server"):
        await schema.start()


async def test_a_newer_schema_that_breaks_nothing_is_accepted(schema: Schema) -> None:
    first = await schema.start()
    await schema.execute("INSERT INTO schema_migrations VALUES (900, 'grow', 'x', false, 0)")
    assert await schema.start() == [*first, Applied(900, "grow", "x", is_breaking=False)]


async def test_a_refused_database_keeps_its_schema_and_can_be_opened_once_it_fits(
    schema: Schema,
) -> None:
    first = await schema.start()
    await schema.execute("INSERT INTO schema_migrations VALUES (900, 'split', 'x', true, 0)")
    with pytest.raises(SchemaError):
        await schema.start()
    await schema.execute("DELETE FROM schema_migrations WHERE number = 900")
    assert await schema.start() == first


async def test_servers_that_start_together_migrate_once(postgres: PostgresServer) -> None:
    dsn = postgres.dsn(postgres.create_database())
    stores = [PostgresStore(dsn) for _ in range(6)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        applied = [await store.read(_applied) for store in stores]
        assert all(each == applied[0] for each in applied)
        assert [each.number for each in applied[0]] == list(range(1, len(applied[0]) + 1))
        await insert(stores[0], pending(1))
        assert await live(stores[-1], 1) == [pending(1)]
    finally:
        for store in stores:
            await store.close()


def test_what_is_missing_comes_in_order_and_without_what_is_done() -> None:
    done = Applied(FIRST.number, FIRST.name, FIRST.checksum, is_breaking=False)
    assert migration.missing([FIRST, SECOND], []) == [FIRST, SECOND]
    assert migration.missing([FIRST, SECOND], [done]) == [SECOND]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_migrations_are_numbered_without_gaps_and_say_what_they_are(dialect: str) -> None:
    found = migration.load(f"tenure.store.{dialect}.migrations")
    assert [each.number for each in found] == list(range(1, len(found) + 1))


def test_both_databases_have_the_same_migrations() -> None:
    sqlite, postgres = (
        [(each.number, each.name, each.is_breaking) for each in migration.load(package)]
        for package in ("tenure.store.sqlite.migrations", "tenure.store.postgres.migrations")
    )
    assert sqlite == postgres
