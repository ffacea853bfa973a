"""The statements: the loader, and that both databases have the same ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

import apsw
import apsw.ext
import asyncpg
import pytest

from tenure.store import statement
from tenure.store.postgres import PostgresStore, schema
from tenure.store.sqlite import SqliteStore
from tenure.store.statement import Statement
from tenure.store.transaction import Store, Tx
from tests.postgres import PostgresServer
from tests.store.rows import HIGHEST_ID, LOWEST_ID

SQLITE: Final = statement.load("tenure.store.sqlite.sql", mark="?")
POSTGRES: Final = schema.statements_in("tenure")
DIALECTS: Final = {"sqlite": SQLITE, "postgres": POSTGRES}
PACKAGES: Final = {name: resources.files(f"tenure.store.{name}.sql") for name in DIALECTS}

# What a parameter is made of, by its name; every other one is a text.
INTEGERS: Final = re.compile(
    r"_ms$|_count$|_checksum$|_max$|_min$|^(completed|failed|line|priority|attempt|version|worker_version|session_no|slots|pid|number"
    r"|token|amount|day|before_day|timeline|pos|after_pos|upto_pos|old_day|seen|no|first_no|kind|total_bytes"
    r"|call_index|total|spawned|count|more)$"
)
IDS: Final = re.compile(
    r"^(id|task_id|after_task_id|worker_id|server_id|before_id|after_id|mark_id|parent_id|(old_)?journal_id"
    r"|group_id|run_id|owner_id)$"
)
BLOBS: Final = frozenset(
    {
        "spec",
        "progress",
        "input",
        "output",
        "error",
        "digest",
        "value",
        "body",
        "origin",
        "callback",
        "content",
    }
)
FLAGS: Final = frozenset({"takes_runs", "release_pending", "fails_fast", "has_ended"})
DIGEST: Final = bytes(32)
TEXTS: Final = {
    "state": "running",
    "status": "online",
    "types": '["mail"]',
    "labels": "{}",
    "deaf": "[]",
    "mode": "session",
    "end_reason": None,
    "last_outcome": None,
    "key_id": "aaaaaaaaaaaaaaaa",
    "role": "admin",
    "namespaces": "[]",
    "scope": "[]",
    "keep": "[]",
}
# What a name of a parameter means in one statement only.
BY_STATEMENT: Final[dict[str, dict[str, object]]] = {
    "insert_fires": {"kind": "tick", "outcome": None, "settled_at_ms": None, "reason": None},
    "settle_fires": {"outcome": "succeeded"},
}
# How many of the last parameters are the same for all rows.
SHARED: Final = {
    "count_depths": 1,
    "count_queue_tasks": 1,
    "sum_worker_held": 1,
    "beat_leases": 1,
    "send_notification": 1,
    "read_entries": 2,
    "count_children": 1,
    "find_children": 1,
    "read_children": 1,
    "count_parked_runs": 1,
    "list_oldest_runs": 1,
    "find_ticks": 1,
    "load_named_schedules": 1,
}
# These change what is not inside a transaction, or the schema that the others need.
APART: Final = frozenset({"vacuum_tasks"})
# SQLite has an injected clock, and no locks, partitions and schemas.
NOTHING_TO_DO: Final = (
    *("now_ms", "lock_migrations", "ensure_days", "drop_days", "set_plans", "create_schema"),
)


def dummy(name: str, parameter: str) -> object:
    """Return a value that a parameter of a statement could have."""
    if name == "insert_linked_tasks" and parameter == "id":
        # One that no other statement inserts.
        return HIGHEST_ID
    if name == "insert_migration" and parameter == "number":
        return 9_999
    if parameter == "secret_digest":
        return DIGEST
    if name in BY_STATEMENT and parameter in BY_STATEMENT[name]:
        return BY_STATEMENT[name][parameter]
    if parameter == "state" and name.endswith("_schedules"):
        return "active"
    if parameter in TEXTS:
        is_finished = parameter == "state" and name in {"insert_history", "finish_tasks"}
        return "succeeded" if is_finished else TEXTS[parameter]
    if parameter.startswith("is_") or parameter in FLAGS:
        return False
    if INTEGERS.search(parameter):
        return 0 if parameter == "line" else 1
    if IDS.search(parameter):
        return LOWEST_ID
    return b"\x80" if parameter in BLOBS else "text"


def takes_arrays(sql: str) -> bool:
    return re.search(r'AS [\w".]+\[\]\)', sql) is not None


def test_a_statement_has_a_name_its_parameters_and_numbered_marks() -> None:
    (found,) = statement.parse("-- name: read_it(b, a)\n-- Why.\nSELECT :a, :b, :a;\n", mark="$")
    assert found.name == "read_it"
    assert found.parameters == ("b", "a")
    assert [(part.text, part.parameter_count) for part in found.parts] == [("SELECT $2, $1, $2", 2)]


def test_a_statement_may_have_several_parts_that_take_the_first_parameters() -> None:
    text = "-- name: move_it(id, state)\nDELETE FROM a\nWHERE id = :id;\nSELECT :id, :state;\n"
    (found,) = statement.parse(text, mark="?")
    assert [part.parameter_count for part in found.parts] == [1, 2]
    assert found.parts[0].text == "DELETE FROM a\nWHERE id = ?1"


def test_a_cast_with_colons_is_no_parameter() -> None:
    (found,) = statement.parse("-- name: cast_it(a)\nSELECT :a::text;\n", mark="$")
    assert found.parts[0].text == "SELECT $1::text"


def test_a_parameter_that_the_header_does_not_name_is_refused() -> None:
    with pytest.raises(KeyError):
        statement.parse("-- name: read_it(a)\nSELECT :b;\n", mark="$")


def test_both_databases_have_the_same_statements_with_the_same_parameters() -> None:
    def headers(statements: Mapping[str, Statement]) -> dict[str, tuple[str, ...]]:
        return {name: each.parameters for name, each in statements.items()}

    assert headers(SQLITE) == headers(POSTGRES)


def test_whole_rows_are_one_parameter_before_those_that_rows_share() -> None:
    text = "-- name: save_them(a, b, now_ms)\nSELECT :now_ms, u FROM unnest(:rows) AS u;\n"
    (found,) = statement.parse(text, mark="$")
    assert found.takes_rows
    assert found.parameters == ("a", "b", "now_ms")
    assert found.parts[0].text == "SELECT $2, u FROM unnest($1) AS u"
    assert found.parts[0].parameter_count == 2


def parameter_count(each: Statement) -> int:
    """Return how many parameters a statement takes; rows that come as one value are one."""
    return 1 + SHARED.get(each.name, 0) if each.takes_rows else len(each.parameters)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_parameter_of_a_header_is_used(dialect: str) -> None:
    for each in DIALECTS[dialect].values():
        marks = {int(mark) for part in each.parts for mark in re.findall(r"[?$](\d+)", part.text)}
        assert marks == set(range(1, parameter_count(each) + 1)), each.name


async def test_the_type_of_a_row_has_the_parameters_of_its_statement_in_their_order(
    dsn: str,
) -> None:
    postgres = await asyncpg.connect(dsn)
    try:
        for each in POSTGRES.values():
            if each.takes_rows:
                (type_,) = re.findall(r'CAST\(\$1 AS "tenure"\.(\w+)\[\]\)', each.parts[0].text)
                columns = await postgres.fetch(
                    "SELECT a.attname FROM pg_attribute AS a JOIN pg_type AS t "
                    "ON t.typrelid = a.attrelid WHERE t.typname = $1 ORDER BY a.attnum",
                    type_,
                )
                row_count = len(each.parameters) - SHARED.get(each.name, 0)
                assert tuple(row[0] for row in columns) == each.parameters[:row_count], each.name
    finally:
        await postgres.close()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_statements_stand_in_files_of_the_same_names_in_alphabetical_order(dialect: str) -> None:
    files = sorted(file.name for file in PACKAGES[dialect].iterdir() if file.name.endswith(".sql"))
    assert files == sorted(f.name for f in PACKAGES["sqlite"].iterdir() if f.name.endswith(".sql"))
    for name in files:
        text = (PACKAGES[dialect] / name).read_text("utf-8")
        names = re.findall(r"^-- name: (\w+)", text, re.MULTILINE)
        assert names == sorted(names), name


def test_a_statement_is_in_the_file_of_the_same_name_for_both_databases() -> None:
    for file in PACKAGES["sqlite"].iterdir():
        if file.name.endswith(".sql"):
            ours = statement.parse(file.read_text("utf-8"), mark="?")
            theirs = (PACKAGES["postgres"] / file.name).read_text("utf-8")
            names = [each.name for each in statement.parse(theirs, mark="$")]
            assert [each.name for each in ours] == names


async def run_every_statement(store: Store) -> None:
    for name in sorted(SQLITE.keys() - APART):
        parameters = tuple(dummy(name, each) for each in SQLITE[name].parameters)

        async def body(tx: Tx, name: str = name, row: tuple[object, ...] = parameters) -> None:
            if takes_arrays(POSTGRES[name].parts[0].text):
                shared = SHARED.get(name, 0)
                await tx.each(name, [row[: len(row) - shared]], *row[len(row) - shared :])
            else:
                await tx.one(name, *row)

        await store.transaction(body)


async def test_every_statement_runs_on_both_databases(store: Store) -> None:
    await run_every_statement(store)


@pytest.mark.parametrize("pooled", [False, True])
async def test_every_statement_finds_its_tables_outside_the_search_path(
    postgres: PostgresServer, pooled: bool
) -> None:
    dsn = postgres.dsn(postgres.create_database())
    store = PostgresStore(dsn, schema="select", pooled=pooled)
    await store.open()
    try:
        await run_every_statement(store)
        for name in sorted(APART):
            await store.maintain(name)
    finally:
        await store.close()


async def test_statements_take_the_same_parameters_and_give_as_many_columns(
    dsn: str, sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    del sqlite_store
    sqlite = apsw.Connection(str(tmp_path / "tenure.db"))
    sqlite.create_scalar_function("now_ms", lambda *_: 0, 0)
    postgres = await asyncpg.connect(dsn)
    try:
        for name in sorted(SQLITE.keys() - APART):
            (part,) = POSTGRES[name].parts
            prepared = await postgres.prepare(part.text)
            assert len(prepared.get_parameters()) == parameter_count(POSTGRES[name]), name
            last = apsw.ext.query_info(sqlite, SQLITE[name].parts[-1].text)
            if last.is_readonly and not name.startswith(NOTHING_TO_DO):
                assert len(prepared.get_attributes()) == len(last.description), name
    finally:
        await postgres.close()
        sqlite.close()


async def test_maintenance_runs_on_both_databases(store: Store) -> None:
    for name in sorted(APART):
        await store.maintain(name)
