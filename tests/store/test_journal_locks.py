"""A late step and a take-over of its run, on two connections of PostgreSQL, in each order."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from msgspec.structs import replace

from tenure.core.journal import numbering
from tenure.core.journal.numbering import JournalEnd
from tenure.core.task.record import Line, Task, TaskState
from tenure.store.failure import FenceLost
from tenure.store.postgres import PostgresStore
from tenure.store.table import journal as journal_table
from tenure.store.table import task as task_table
from tenure.store.transaction import Tx
from tests.store.rows import NAMESPACE, NOW, dispatched_from, insert, task_id, worker_id
from tests.store.test_journal_table import HOLDER, JOURNAL, KEY, SIGNAL, STEP, kinds, run
from tests.store.test_locks import Two


@pytest.fixture
async def two(dsn: str) -> AsyncIterator[Two]:
    stores = [PostgresStore(dsn) for _ in range(2)]
    for store in stores:
        await store.open()
    watcher = await asyncpg.connect(dsn)
    yield Two(stores[0], stores[1], watcher)
    await watcher.close()
    for store in stores:
        await store.close()


async def record_step(tx: Tx) -> None:
    """Record a step as a server does that remembers row and end of the run."""
    entries, _ = numbering.append(JournalEnd(JOURNAL), [STEP], at_ms=NOW, attempt=1)
    await journal_table.insert_entries(tx, [(each, HOLDER) for each in entries])


async def take_over(tx: Tx) -> JournalEnd:
    """Give the run to another worker; return where its journal ended then."""
    (task,) = await task_table.load_tasks(tx, [(NAMESPACE, task_id(1))])
    back = replace(task, state=TaskState.PENDING, line=Line.RETURNED, worker_id=None)
    await task_table.update_tasks(tx, [dispatched_from(back, by=worker_id(2))])
    return (await journal_table.read_ends(tx, [JOURNAL])).get(JOURNAL, JournalEnd(JOURNAL))


async def signal(tx: Tx) -> list[Task]:
    """Append a signal to the run, whose row is locked and not written."""
    found = await task_table.load_tasks(tx, [KEY])
    ends = await journal_table.read_ends(tx, [JOURNAL])
    entries, _ = numbering.append(ends.get(JOURNAL, JournalEnd(JOURNAL)), [SIGNAL], at_ms=NOW)
    await journal_table.append_entries(tx, [(each, KEY) for each in entries])
    return found


async def test_a_late_step_waits_for_a_take_over_and_finds_nothing(two: Two) -> None:
    await insert(two.first, run())
    end, late = await two.overlap(take_over, record_step, second_waits=True)
    assert end.pos == 0
    assert isinstance(late, FenceLost)
    assert await kinds(two.first) == []


async def test_a_take_over_waits_for_a_step_and_sees_it(two: Two) -> None:
    await insert(two.first, run())
    _, end = await two.overlap(record_step, take_over, second_waits=True)
    assert isinstance(end, JournalEnd)
    assert (end.pos, end.last_no_of(1)) == (1, 1)


async def test_a_step_that_waits_for_a_signal_finds_its_position_taken(two: Two) -> None:
    await insert(two.first, run())
    _, late = await two.overlap(signal, record_step, second_waits=True)
    assert isinstance(late, FenceLost)
    assert len(await kinds(two.first)) == 1


async def test_a_signal_waits_for_a_step_and_stands_behind_it(two: Two) -> None:
    await insert(two.first, run())
    _, found = await two.overlap(record_step, signal, second_waits=True)
    assert isinstance(found, list)
    assert await kinds(two.first) == [STEP.kind, SIGNAL.kind]


async def test_steps_of_two_runs_do_not_wait_for_each_other(two: Two) -> None:
    await insert(two.first, run(1), run(2))

    async def record_other(tx: Tx) -> None:
        other = run(2)
        assert other.link is not None
        assert other.link.journal_id is not None
        end = JournalEnd(other.link.journal_id)
        entries, _ = numbering.append(end, [STEP], at_ms=NOW, attempt=1)
        holder = replace(HOLDER, task_id=other.id)
        await journal_table.insert_entries(tx, [(each, holder) for each in entries])

    _, second = await two.overlap(record_step, record_other, second_waits=False)
    assert second is None
