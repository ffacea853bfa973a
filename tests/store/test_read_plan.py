"""Lists and counts look at a bounded number of 100,000 rows, whatever a planner knows of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import apsw
import asyncpg
import pytest
from msgspec.structs import replace

from tenure.core.task.record import TaskState
from tenure.store import statement
from tenure.store.postgres import PostgresStore
from tenure.store.postgres.store import READ_SETTINGS
from tenure.store.sqlite import SqliteStore
from tenure.store.table import task as task_table
from tests.store.rows import (
    HIGHEST_ID,
    NAMESPACE,
    NOW,
    QUEUE,
    finished_from,
    held,
    insert,
    pending,
    worker_id,
)

POSTGRES: Final = statement.load("tenure.store.postgres.sql", mark="$")
SQLITE: Final = statement.load("tenure.store.sqlite.sql", mark="?")
ROWS: Final = 100_000
SEEN: Final = 500
PAGE: Final = 21
# What SQLite does for one row that it looks at: 120 steps of its machine were seen at most.
STEPS_PER_ROW: Final = 200
# PostgreSQL goes to a row by an index page and a page of the table at most; and to the first one.
BUFFERS_PER_ROW: Final = 3
EMPTY_INDEX_BYTES: Final = 8_192
Plan = dict[str, Any]

ALL: Final = (NAMESPACE, "", "", "")
NONE: Final = (NAMESPACE, "", "none", "")
RUNS: Final = (*ALL, "", "", "{}", 0, NOW + ROWS, "")
LABELLED_RUNS: Final = (*ALL, "", "", '{"team":"a"}', 0, NOW + ROWS, "")
LARGE: Final = (NAMESPACE, QUEUE, "none", "")
SMALL: Final = (NAMESPACE, "small", "", "")
WORKERS: Final = (NAMESPACE, "none", "", "", "{}", "", "[]", NOW)
AT_END: Final = (HIGHEST_ID, SEEN, PAGE)

# Statements, what they are called with, and how many rows each look of theirs may be at.
READS: Final = (
    ("find_live_tasks", (*ALL, *AT_END), PAGE),
    ("find_live_tasks", (NAMESPACE, "", "", "pending", *AT_END), 3 * PAGE),
    ("find_live_tasks", (*NONE, *AT_END), SEEN),
    # Most are activities, which a list of runs does not look at.
    ("find_live_runs", (*RUNS, *AT_END), PAGE),
    ("find_live_runs", (*LABELLED_RUNS, *AT_END), SEEN),
    ("find_finished_runs", (*RUNS, *AT_END), PAGE),
    ("find_finished_runs", (*LABELLED_RUNS, *AT_END), SEEN),
    ("count_live_runs", (*LABELLED_RUNS, SEEN), SEEN),
    ("count_finished_runs", (*LABELLED_RUNS, SEEN), SEEN),
    ("count_run_states", (SEEN,), SEEN),
    ("find_finished_tasks", (*ALL, *AT_END), PAGE),
    ("find_finished_tasks", (*NONE, *AT_END), SEEN),
    ("find_unsuccessful_tasks", (NAMESPACE, "", "", "failed", *AT_END), PAGE),
    ("find_held_tasks", (NAMESPACE, "", "", "running", *AT_END), SEEN),
    ("find_state_tasks", (NAMESPACE, "", "", "running", *AT_END), PAGE),
    ("find_state_tasks", (NAMESPACE, "", "", "waiting", *AT_END), PAGE),
    ("find_state_tasks", (NAMESPACE, "", "none", "running", *AT_END), SEEN),
    ("count_state_tasks", (NAMESPACE, "", "none", "running", SEEN), SEEN),
    ("find_queue_tasks", (*LARGE, *AT_END), SEEN),
    ("find_queue_tasks", (*SMALL, *AT_END), PAGE),
    ("count_live_tasks", (*NONE, SEEN), SEEN),
    ("count_finished_tasks", (*NONE, SEEN), SEEN),
    ("count_unsuccessful_tasks", (NAMESPACE, "", "", "failed", SEEN), SEEN),
    ("find_queues", (NAMESPACE, "", 10), PAGE),
    ("find_busy_namespaces", ("", 10), PAGE),
    ("list_workers", (*WORKERS, *AT_END), SEEN),
    ("count_listed_workers", (*WORKERS, SEEN), SEEN),
)
# Of these one row of parameters is given.
COUNTS: Final = (
    ("count_queue_tasks", (NAMESPACE, QUEUE), SEEN),
    ("count_depths", (NAMESPACE, QUEUE), SEEN),
    ("count_parked_runs", (NAMESPACE,), SEEN),
    ("list_oldest_runs", (NAMESPACE,), SEEN),
)
STATES: Final = ("no statistics", "vacuumed while empty", "good statistics")

# Even tasks wait, odd ones are held; some are of a small queue, some have a delay, some are runs.
TASKS: Final = """
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, due_at_ms, is_guarded, spec, journal_id
)
SELECT
    {id}, '{namespace}', CASE WHEN n % 10000 = 0 THEN 'small' ELSE '{queue}' END, 'mail',
    CASE WHEN n % 2 = 0 THEN 'pending' ELSE 'running' END,
    CASE WHEN n % 2 = 0 AND n % 20 <> 0 THEN 1 ELSE 0 END, 5, {now}, {now} + n, n % 2, 0,
    CASE WHEN n % 2 = 1 THEN {worker} END, 0, 0, CASE WHEN n % 2 = 1 THEN {now} + n END, {no},
    {spec}, CASE WHEN n % 50 = 0 THEN {id} END
FROM {numbers}
"""
HISTORY: Final = """
INSERT INTO history (
    id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version,
    handed_at_ms, session_no, spec, finished_at_ms, journal_id
)
SELECT
    {id}, '{namespace}', '{queue}', 'mail',
    CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'succeeded' END, 5, {now}, {now}, 1, 1, 0, 0, {spec},
    {now} + n, CASE WHEN n % 50 = 0 THEN {id} END
FROM {numbers}
"""
WORKER_ROWS: Final = """
INSERT INTO workers (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, release_pending, version
)
SELECT
    {id}, '{namespace}', '{queue}', '["mail"]', CAST(n AS text), {now}, 'online', 'session', 1, '',
    '', 1, '', '{{}}', 0, {no}, 0
FROM {numbers}
"""
DIALECTS: Final = {
    "postgres": {
        "id": "CAST('0190a000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid)",
        "worker": f"CAST('{worker_id(1)}' AS uuid)",
        "no": "false",
        "spec": "'\\x80'",
        "numbers": f"generate_series(1, {ROWS}) AS n",
    },
    "sqlite": {
        "id": "'0190a000-0000-7000-8000-' || printf('%012x', n)",
        "worker": f"'{worker_id(1)}'",
        "no": "0",
        "spec": "x'80'",
        "numbers": "(WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
        f"WHERE n < {ROWS}) SELECT n FROM numbers)",
    },
}


def fill(dialect: str) -> list[str]:
    """Return the statements that make all rows."""
    given = {"namespace": NAMESPACE, "queue": QUEUE, "now": NOW, **DIALECTS[dialect]}
    return [sql.format(**given) for sql in (TASKS, HISTORY, WORKER_ROWS)]


@pytest.fixture
async def reader(fresh_dsn: str) -> AsyncIterator[Any]:
    """Return a connection as the pool for reads has it; statistics change when a test says so."""
    connection = await asyncpg.connect(fresh_dsn, server_settings=READ_SETTINGS)
    for relation in ("tasks", "history_default", "workers"):
        await connection.execute(f"ALTER TABLE {relation} SET (autovacuum_enabled = off)")
    yield connection
    await connection.close()


@pytest.mark.parametrize("state", STATES)
async def test_postgres_looks_at_a_bounded_number_of_rows(
    reader: Any, fresh_dsn: str, state: str
) -> None:
    if state == "vacuumed while empty":
        for sql in fill("postgres"):
            await reader.execute(sql)
        for relation in ("tasks", "history_default", "workers"):
            await reader.execute(f"DELETE FROM {relation}")
            await reader.execute(f"VACUUM (TRUNCATE off) {relation}")
    for sql in fill("postgres"):
        await reader.execute(sql)
    if state == "good statistics":
        await reader.execute("ANALYZE")
    pooled = await asyncpg.connect(fresh_dsn, statement_cache_size=0)
    try:
        for connection in (reader, pooled):
            for name, values, rows_max in READS:
                check(name, await explain(connection, name, *values), rows_max)
            for name, row, rows_max in COUNTS:
                arrays = [[each] for each in row]
                check(name, await explain(connection, name, *arrays, SEEN), rows_max)
    finally:
        await pooled.close()


async def explain(connection: Any, name: str, *values: object) -> Plan:
    """Run a statement and return its plan, generic or not as the connection has it."""
    async with connection.transaction(readonly=True):
        # What a scan does behind a pooler, and what changes nothing where the session has it.
        await connection.fetch(POSTGRES["set_plans"].parts[0].text)
        text = await connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {POSTGRES[name].parts[0].text}", *values
        )
    plan: Plan = json.loads(text)[0]["Plan"]
    return plan


def check(name: str, plan: Plan, rows_max: int) -> None:
    for node in nodes(plan):
        removed = sum(count for key, count in node.items() if key.startswith("Rows Removed"))
        looked_at = (node["Actual Rows"] + removed) * node["Actual Loops"]
        assert looked_at <= 2 * rows_max, (name, node)
    used = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert used <= BUFFERS_PER_ROW * (rows_max + 100), (name, used)


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def test_tasks_that_are_done_at_once_never_enter_the_indexes_of_reads(fresh_dsn: str) -> None:
    # A database of its own: an index does not shrink after other tests.
    postgres_store = PostgresStore(fresh_dsn)
    await postgres_store.open()
    numbers = range(1, 1_001)
    await insert(postgres_store, *(pending(number) for number in numbers))
    dispatched = TaskState.DISPATCHED
    taken = [replace(held(number), version=0, state=dispatched) for number in numbers]
    await postgres_store.transaction(lambda tx: task_table.update_tasks(tx, taken))
    done = [finished_from(replace(task, version=1)) for task in taken]
    await postgres_store.transaction(lambda tx: task_table.finish_tasks(tx, done))
    await postgres_store.close()
    connection = await asyncpg.connect(fresh_dsn)
    try:
        sizes = await connection.fetch(
            "SELECT c.relname, pg_relation_size(c.oid) FROM pg_index AS i "
            "JOIN pg_class AS c ON c.oid = i.indexrelid WHERE c.relkind = 'i' AND "
            "(c.relname IN ('tasks_resting', 'tasks_states') "
            "OR pg_get_expr(i.indpred, i.indrelid) LIKE '%succeeded%')"
        )
    finally:
        await connection.close()
    assert len(sizes) > 2
    # One page is an index without entries.
    assert all(size <= EMPTY_INDEX_BYTES for _, size in sizes), sizes


@pytest.mark.parametrize("state", ["loaded", "analyzed"])
async def test_sqlite_looks_at_a_bounded_number_of_rows(
    sqlite_store: SqliteStore, tmp_path: Path, state: str
) -> None:
    del sqlite_store
    connection = apsw.Connection(str(tmp_path / "tenure.db"))
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    try:
        for sql in fill("sqlite"):
            connection.execute(sql)
        if state == "analyzed":
            connection.execute("ANALYZE")
        for name, values, rows_max in READS:
            assert steps(connection, name, *values) <= STEPS_PER_ROW * (rows_max + 10), name
        for name, row, rows_max in COUNTS:
            assert steps(connection, name, *row, SEEN) <= STEPS_PER_ROW * (rows_max + 10), name
    finally:
        connection.close()


def steps(connection: apsw.Connection, name: str, *values: Any) -> int:
    """Return how many steps SQLite's machine takes for a statement."""
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += 1
        return False

    (part,) = SQLITE[name].parts
    connection.set_progress_handler(count, 1)
    try:
        connection.execute(part.text, values).fetchall()
    finally:
        connection.set_progress_handler(None)
    return taken
