"""What other servers have changed: read by arrays, by index, and only where it is news."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import apsw
import asyncpg
import pytest

from tenure.core.task.record import TaskState
from tenure.core.worker.record import EndReason, WorkerStatus
from tenure.store import statement
from tenure.store.sqlite import SqliteStore
from tenure.store.table import news as news_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.news import Known, News
from tenure.store.transaction import Store
from tests.store.rows import (
    NAMESPACE,
    QUEUE,
    finished_from,
    held,
    insert,
    offline,
    pending,
    task_id,
    worker,
    worker_id,
)

POSTGRES: Final = statement.load("tenure.store.postgres.sql", mark="$")
SQLITE: Final = statement.load("tenure.store.sqlite.sql", mark="?")
WORKERS: Final = 500
HELD_EACH: Final = 20
WAITED: Final = 500
ANY: Final = 2**31 - 1


def known(number: int, *, session_no: int = 1, held_count: int = 0) -> Known:
    return Known(NAMESPACE, QUEUE, worker_id(number), session_no, held_count)


async def read(store: Store, *believed: Known) -> list[News]:
    found = await store.read(lambda tx: news_table.read_news(tx, believed))
    return sorted(found, key=lambda each: each.worker_id)


async def add(store: Store, *workers: Any) -> None:
    await store.transaction(lambda tx: worker_table.insert_workers(tx, workers))


async def test_a_worker_about_whom_all_is_known_is_no_news(store: Store) -> None:
    await add(store, worker(1, session_no=1))
    await insert(store, held(1), held(2))
    assert await read(store, known(1, held_count=2), known(1, held_count=1)) == []
    assert await read(store, known(1, held_count=0), known(1, session_no=ANY)) == []


async def test_who_is_not_online_or_has_a_later_session_is_news(store: Store) -> None:
    draining = worker(2, status=WorkerStatus.DRAINING, session_no=1)
    moved = worker(4, session_no=3)
    await add(store, worker(1, session_no=1), draining, offline(3, session_no=1), moved)
    found = await read(store, *(known(number) for number in range(1, 6)))
    assert found == [
        News(worker_id(2), WorkerStatus.DRAINING, None, 1, 0),
        News(worker_id(3), WorkerStatus.OFFLINE, EndReason.LEASE_EXPIRED, 1, 0),
        News(worker_id(4), WorkerStatus.ONLINE, None, 3, 0),
        News(worker_id(5), None, None, None, 0),
    ]


async def test_who_holds_less_than_is_believed_is_news(store: Store) -> None:
    await add(store, worker(1, session_no=1), worker(2, session_no=1))
    cancelling = held(2, state=TaskState.CANCELLING)
    foreign = held(3, namespace="other/default")
    await insert(store, held(1), cancelling, foreign, held(4, by=worker_id(2)), pending(5))
    found = await read(store, known(1, held_count=3), known(2, held_count=1))
    assert found == [News(worker_id(1), WorkerStatus.ONLINE, None, 1, 2)]
    (every,) = await read(store, known(2, held_count=ANY))
    assert every.held_count == 1


async def test_what_workers_hold_is_read_together(store: Store) -> None:
    await insert(store, held(1), held(2, attempt=3), held(3, by=worker_id(2)), pending(4))
    asked = [(NAMESPACE, QUEUE, worker_id(number)) for number in (1, 2, 3)]
    assert await store.read(lambda tx: news_table.read_held(tx, asked)) == {
        worker_id(1): {task_id(1): 1, task_id(2): 3},
        worker_id(2): {task_id(3): 1},
    }


async def test_only_live_tasks_of_the_namespace_are_found(store: Store) -> None:
    await insert(store, pending(1), held(2), held(3))
    await store.transaction(lambda tx: task_table.finish_tasks(tx, [finished_from(held(3))]))
    keys = [(NAMESPACE, task_id(number)) for number in (1, 2, 3, 4)]
    keys.append(("other/default", task_id(1)))
    assert await store.read(lambda tx: news_table.find_tasks(tx, keys)) == set(keys[:2])


# -- Plans ---------------------------------------------------------------------------------------

FILL: Final = f"""
INSERT INTO workers (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, release_pending, version
)
SELECT
    CAST('0190a000-0000-7000-9000-' || lpad(to_hex(n), 12, '0') AS uuid), '{NAMESPACE}', '{QUEUE}',
    '["mail"]', 'key-' || n, 0, 'online', 'session', 100, '', '', 0, '', '{{}}', 1, false, 0
FROM generate_series(1, 10 * {WORKERS}) AS n;
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, is_guarded, spec
)
SELECT
    CAST('0190a000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), '{NAMESPACE}', '{QUEUE}',
    'mail', 'running', 0, 5, 0, 0, 1, 0,
    CAST('0190a000-0000-7000-9000-' || lpad(to_hex(1 + n % (10 * {WORKERS})), 12, '0') AS uuid),
    0, 1, false, '\\x80'
FROM generate_series(1, 10 * {WORKERS} * {HELD_EACH}) AS n;
"""
VALUES: Final[dict[str, tuple[list[Any], ...]]] = {
    "read_news": (
        [NAMESPACE] * WORKERS,
        [QUEUE] * WORKERS,
        [worker_id(number) for number in range(1, WORKERS + 1)],
        [1] * WORKERS,
        [HELD_EACH] * WORKERS,
    ),
    "read_held": (
        [NAMESPACE] * WORKERS,
        [QUEUE] * WORKERS,
        [worker_id(number) for number in range(1, WORKERS + 1)],
    ),
    "load_cancelling": ([worker_id(number) for number in range(1, WORKERS + 1)],),
    "find_tasks": ([NAMESPACE] * WAITED, [task_id(number) for number in range(1, WAITED + 1)]),
}
ROWS_MAX: Final = {
    "read_news": WORKERS * HELD_EACH,
    "read_held": WORKERS * HELD_EACH,
    "load_cancelling": 0,
    "find_tasks": WAITED,
}


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Relation Name" in plan:
        yield plan
    for child in plan.get("Plans", ()):
        yield from scans(child)


async def check_plans(connection: asyncpg.Connection) -> None:
    for name, values in VALUES.items():
        (part,) = POSTGRES[name].parts
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {part.text}", *values)
        for node in scans(json.loads(text)[0]["Plan"]):
            assert node["Node Type"] != "Seq Scan", (name, node)
            removed = node.get("Rows Removed by Filter", 0)
            looked_at = (node["Actual Rows"] + removed) * node["Actual Loops"]
            is_task = node["Relation Name"] == "tasks"
            assert looked_at <= (ROWS_MAX[name] if is_task else WORKERS), (name, node)


async def test_reads_go_by_index_whatever_the_statistics_say(fresh_dsn: str) -> None:
    connection = await asyncpg.connect(fresh_dsn, statement_cache_size=0)
    try:
        for table_name in ("tasks", "workers"):
            await connection.execute(f"ALTER TABLE {table_name} SET (autovacuum_enabled = off)")
        # Statistics of empty tables, the normal state of a queue, mislead a planner the most.
        await connection.execute("VACUUM ANALYZE tasks, workers")
        await connection.execute(FILL)
        await check_plans(connection)
        await connection.execute("ANALYZE tasks, workers")
        await check_plans(connection)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("read_news", {"tasks_held", "PRIMARY KEY"}),
        ("read_held", {"tasks_held"}),
        ("load_cancelling", {"tasks_cancelling"}),
        ("find_tasks", {"PRIMARY KEY"}),
    ],
)
async def test_reads_go_by_index_on_sqlite(
    sqlite_store: SqliteStore, tmp_path: Any, name: str, indexes: set[str]
) -> None:
    del sqlite_store
    connection = apsw.Connection(str(tmp_path / "tenure.db"))
    (part,) = SQLITE[name].parts
    row = tuple(each[0] for each in VALUES[name])
    steps = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {part.text}", row)]
    searches = [each for each in steps if each.startswith(("SEARCH", "SCAN"))]
    assert not [each for each in searches if each.startswith(("SCAN tasks", "SCAN w"))]
    for index in indexes:
        assert any(index in each for each in searches), steps
    connection.close()
