"""History and ended attempts: retention, and the days of PostgreSQL."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from msgspec.structs import replace

from tenure.store.failure import FenceLost
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.table import task as task_table
from tenure.store.transaction import LaneName, Store, Tx
from tests.store.rows import (
    DAY_MS,
    NAMESPACE,
    NOW,
    by_id,
    ended_attempt,
    finished_from,
    held,
    history,
    insert,
    live,
    pending,
    task_id,
)

TODAY = NOW // DAY_MS


async def add_finished(store: Store, number: int, at_ms: int) -> None:
    """Write a task that finished then, and an attempt that ended then."""
    task = finished_from(pending(number), finished_at_ms=at_ms)
    attempt = ended_attempt(number, 1, ended_at_ms=at_ms)
    await store.transaction(lambda tx: task_table.insert_finished(tx, [task]))
    await store.transaction(lambda tx: task_table.insert_attempts(tx, [attempt]))


async def ensure(store: Store, *days: int) -> None:
    async def body(tx: Tx) -> None:
        for day in days:
            await tx.one("ensure_days", day)

    await store.transaction(body, LaneName.SERVICE)


async def drop_before(store: Store, day: int) -> object:
    rows = await store.transaction(lambda tx: tx.one("drop_days", day), LaneName.SERVICE)
    return rows[0][0]


async def partitions(dsn: str, rows_of: str = "history") -> dict[str, int]:
    """Return how many rows lie in each partition."""
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetch(
            f"SELECT CAST(tableoid AS regclass)::text, count(*) FROM {rows_of} GROUP BY 1"
        )
        return {row[0]: row[1] for row in found}
    finally:
        await connection.close()


async def attempts_of(store: Store, number: int) -> int:
    key = (NAMESPACE, task_id(number))
    return len(await store.read(lambda tx: task_table.load_attempts(tx, key)))


async def test_old_history_and_old_attempts_are_deleted_in_bounded_batches(store: Store) -> None:
    for number in range(1, 6):
        await add_finished(store, number, NOW - 6 + number)

    async def forget(amount: int) -> int:
        rows = await store.transaction(lambda tx: tx.one("delete_history", NOW - 2, amount))
        return len(rows)

    assert await forget(2) == 2
    assert await forget(2) == 1
    assert await forget(2) == 0
    assert [task.id for task in await history(store, 1, 2, 3, 4, 5)] == [task_id(4), task_id(5)]
    assert [await attempts_of(store, number) for number in range(1, 6)] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("count", [1, 7, 8, 63, 64, 65, 79])
async def test_any_number_of_tasks_is_written_and_finished_each_with_its_own_values(
    store: Store, count: int
) -> None:
    numbers = range(1, count + 1)
    tasks = [held(number, input=b"in %d" % number) for number in numbers]
    await insert(store, *tasks)
    ends = [finished_from(task, output=b"out " + (task.input or b"")) for task in tasks]
    await store.transaction(lambda tx: task_table.finish_tasks(tx, ends[::-1]))
    expected = [replace(task, version=task.version + 1) for task in ends]
    assert by_id(await history(store, *numbers)) == expected
    assert await live(store, *numbers) == []


@pytest.mark.parametrize("every", [1, 2, 70])
async def test_tasks_of_two_namespaces_are_finished_together_and_their_namesakes_stay(
    store: Store, every: int
) -> None:
    other = "aaa/default"
    await store.transaction(lambda tx: tx.each("insert_namespaces", [(other, NOW)]))
    mine = [held(number) for number in range(1, 81)]
    theirs = [replace(task, namespace=other) for task in mine]
    await insert(store, *mine, *theirs)
    pairs = zip(mine, theirs, strict=True)
    ends = [pair[at % every == 0] for at, pair in enumerate(pairs)]
    left = {(task.namespace, task.id) for task in (*mine, *theirs)}
    left -= {(task.namespace, task.id) for task in ends}
    finished = [finished_from(task) for task in ends]
    await store.transaction(lambda tx: task_table.finish_tasks(tx, finished))
    keys = [(task.namespace, task.id) for task in (*mine, *theirs)]
    rows = await store.transaction(lambda tx: task_table.read_tasks(tx, keys))
    assert {(row.namespace, row.id) for row in rows} == left


@pytest.mark.parametrize("stale", [0, 63, 65, 79])
async def test_one_stale_version_among_many_stops_the_whole_write(store: Store, stale: int) -> None:
    tasks = [held(number) for number in range(1, 81)]
    await insert(store, *tasks)
    ends = [finished_from(task) for task in tasks]
    ends[stale] = replace(ends[stale], version=ends[stale].version + 1)
    with pytest.raises(FenceLost):
        await store.transaction(lambda tx: task_table.finish_tasks(tx, ends))
    assert await history(store, *range(1, 81)) == []
    assert len(await live(store, *range(1, 81))) == 80


async def test_the_id_of_a_finished_task_used_again_stops_nobody_and_the_first_end_stays(
    sqlite_store: SqliteStore,
) -> None:
    first = finished_from(pending(1), output=b"first")
    await sqlite_store.transaction(lambda tx: task_table.insert_finished(tx, [first]))
    await insert(sqlite_store, held(1), held(2))
    ends = [finished_from(held(number), output=b"second") for number in (1, 2)]
    await sqlite_store.transaction(lambda tx: task_table.finish_tasks(tx, ends))
    expected = [first, replace(ends[1], version=ends[1].version + 1)]
    assert by_id(await history(sqlite_store, 1, 2)) == expected
    assert await live(sqlite_store, 1, 2) == []


async def test_the_days_of_history_are_made_and_dropped_alike_on_both_databases(
    store: Store,
) -> None:
    await ensure(store, TODAY - 1, TODAY, TODAY + 1)
    await add_finished(store, 1, NOW)
    await add_finished(store, 2, NOW + DAY_MS)
    await drop_before(store, TODAY)
    assert len(await history(store, 1, 2)) == 2


async def test_a_finished_task_lies_in_the_partition_of_its_day(
    postgres_store: PostgresStore, dsn: str
) -> None:
    await ensure(postgres_store, TODAY)
    for number, at_ms in ((1, TODAY * DAY_MS), (2, (TODAY + 1) * DAY_MS - 1)):
        await add_finished(postgres_store, number, at_ms)
    assert await partitions(dsn) == {f"history_{TODAY}": 2}
    assert await partitions(dsn, "attempts") == {f"attempts_{TODAY}": 2}


async def test_a_row_outside_any_day_goes_to_the_default_partition(
    postgres_store: PostgresStore, dsn: str
) -> None:
    await ensure(postgres_store, TODAY)
    await add_finished(postgres_store, 1, (TODAY + 1) * DAY_MS)
    assert await partitions(dsn) == {"history_default": 1}
    assert len(await history(postgres_store, 1)) == 1
    assert await attempts_of(postgres_store, 1) == 1


async def test_days_before_a_day_are_dropped_with_all_that_is_in_them(
    postgres_store: PostgresStore, dsn: str
) -> None:
    await ensure(postgres_store, TODAY - 2, TODAY - 1, TODAY)
    for number, day in enumerate((TODAY - 2, TODAY - 1, TODAY), 1):
        await add_finished(postgres_store, number, day * DAY_MS)
    assert await drop_before(postgres_store, TODAY) == 4
    assert await drop_before(postgres_store, TODAY) == 0
    assert await partitions(dsn) == {f"history_{TODAY}": 1}
    assert await partitions(dsn, "attempts") == {f"attempts_{TODAY}": 1}


async def test_a_day_can_be_made_after_its_first_tasks_have_finished(
    postgres_store: PostgresStore, dsn: str
) -> None:
    await add_finished(postgres_store, 1, NOW)
    await ensure(postgres_store, TODAY, TODAY + 1)
    await add_finished(postgres_store, 2, NOW)
    await add_finished(postgres_store, 3, NOW + DAY_MS)
    assert len(await history(postgres_store, 1, 2, 3)) == 3
    assert (await partitions(dsn))[f"history_{TODAY + 1}"] == 1


async def test_two_servers_may_make_the_same_day_at_once(dsn: str) -> None:
    stores = [PostgresStore(dsn) for _ in range(3)]
    try:
        for each in stores:
            await each.open()
        for _ in range(2):
            await asyncio.gather(*(ensure(each, TODAY, TODAY + 1) for each in stores))
        await add_finished(stores[0], 1, NOW)
        assert await partitions(dsn) == {f"history_{TODAY}": 1}
    finally:
        for each in stores:
            await each.close()
