"""Batches about children on two connections of PostgreSQL: they wait in one order, or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tenure.core.journal.entry import EntryKind
from tenure.core.run.record import Origin, RunLink, encode_origin
from tenure.core.task.record import Task
from tenure.engine.batch import run as batch
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.clock import SystemClock
from tenure.engine.command import AnyCommand
from tenure.engine.run.child_command import CloseChildren
from tenure.engine.run.command import RecordSteps, StepReport, StepsPlaced
from tenure.engine.settings import Settings
from tenure.engine.task.command import Finish, FinishKind, FinishTasks, Reported, TerminateTask
from tenure.errors import Rejection
from tenure.store.failure import RowsBusy
from tenure.store.table import closing as closing_table
from tenure.store.table.closing import Closing
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx
from tests.store.rows import (
    NAMESPACE,
    NOW,
    held,
    insert,
    live,
    pending,
    server_id,
    task_id,
    worker_id,
)
from tests.store.test_journal_table import STEP, journal_id, kinds, run
from tests.store.test_locks import Act, Two, two

__all__ = ["two"]

CLOCK: Final = SystemClock()
WORKER: Final = worker_id(1)


def child(number: int, of: int, *, is_held: bool = True) -> Task:
    """Return a child of a run; numbers of children are above and below those of their runs."""
    origin = encode_origin(Origin(run_id=task_id(of), journal_id=journal_id(of), key=str(number)))
    link = RunLink(parent_id=task_id(of), origin=origin)
    return held(number, link=link) if is_held else pending(number, link=link)


def runs(
    *commands: AnyCommand, cached: Iterable[Task] = (), parents: Iterable[TaskKey] = ()
) -> Act[Any]:
    """Return a batch of these commands at a server that remembers some rows."""
    cache = {(task.namespace, task.id): task for task in cached}
    context = batch.Context(
        CLOCK,
        server_id(3),
        Settings(),
        cache,
        frozenset({NAMESPACE}),
        ClaimPlan(),
        parents=frozenset(parents),
    )

    async def act(tx: Tx) -> list[object]:
        return (await batch.run(tx, list(commands), context)).answers

    return act


def end(number: int) -> FinishTasks:
    done = Finish(task_id=task_id(number), attempt=1, kind=FinishKind.SUCCEEDED)
    return FinishTasks(namespace=NAMESPACE, worker_id=WORKER, items=(done,))


def record(number: int) -> RecordSteps:
    report = StepReport(task_id=task_id(number), attempt=1, first_no=1, entries=(STEP,))
    return RecordSteps(namespace=NAMESPACE, worker_id=WORKER, items=(report,))


def terminate(number: int) -> TerminateTask:
    return TerminateTask(namespace=NAMESPACE, task_id=task_id(number))


async def test_two_servers_end_each_others_children_while_they_record_steps(two: Two) -> None:
    rows = [run(1), run(2), child(11, 1), child(12, 2)]
    await insert(two.first, *rows)
    # Each server remembers what it has itself: a child of the other's run, and its own run.
    first = runs(end(11), record(2), cached=[rows[2], rows[1]])
    second = runs(record(1), end(12), cached=[rows[3], rows[0]])
    one, other = await two.overlap(first, second, second_waits=True)
    assert isinstance(one[0][0], Reported)
    assert isinstance(one[1][0], StepsPlaced)
    assert isinstance(other, list)
    assert isinstance(other[0][0], StepsPlaced)
    assert isinstance(other[1][0], Reported)
    assert await kinds(two.first, journal_id(1)) == [EntryKind.CHILD, EntryKind.STEP]
    assert await kinds(two.first, journal_id(2)) == [EntryKind.STEP, EntryKind.CHILD]


async def test_one_child_is_ended_at_two_servers_and_heard_once(two: Two) -> None:
    # The run comes behind its child in the order of ids, and before it.
    for number, of in ((3, 5), (7, 6)):
        rows = [run(of), child(number, of)]
        await insert(two.first, *rows)
        first = runs(terminate(number))
        second = runs(end(number), cached=[rows[1]])
        one, other = await two.overlap(first, second, second_waits=True)
        assert isinstance(one[0], Reported)
        assert isinstance(other, list)
        assert isinstance(other[0][0], Rejection)
        assert await kinds(two.first, journal_id(of)) == [EntryKind.CHILD]


async def test_a_parent_that_is_found_late_is_not_waited_for(two: Two) -> None:
    rows = [run(1), child(11, 1)]
    await insert(two.first, *rows)
    recording = runs(record(1), cached=rows)
    _, busy = await two.overlap(recording, runs(terminate(11)), second_waits=False)
    assert isinstance(busy, RowsBusy)
    assert busy.keys == {(NAMESPACE, task_id(1))}
    # The next run of the batch locks it from its start, before anything else.
    again = runs(terminate(11), parents=busy.keys)
    answers = await two.second.transaction(again)
    assert isinstance(answers[0], Reported)
    assert await kinds(two.first, journal_id(1)) == [EntryKind.STEP, EntryKind.CHILD]


async def test_all_parents_that_are_found_late_are_locked_from_the_start_next_time(
    two: Two,
) -> None:
    rows = [run(1), child(11, 1), run(2), child(12, 2)]
    await insert(two.first, *rows)
    recording = runs(record(1), cached=rows)
    _, busy = await two.overlap(recording, runs(terminate(11), terminate(12)), second_waits=False)
    assert isinstance(busy, RowsBusy)
    # The second one was free, and may not be the next time: runs of a batch are few.
    assert busy.keys == {(NAMESPACE, task_id(1)), (NAMESPACE, task_id(2))}


async def test_a_batch_that_locks_a_parent_late_waits_for_no_run_with_it(two: Two) -> None:
    rows = [run(1), run(2), child(12, 2)]
    await insert(two.first, *rows)
    late = runs(record(1), terminate(12), cached=[rows[0]])
    _, busy = await two.overlap(runs(record(1), cached=[rows[0]]), late, second_waits=False)
    # It has not locked the second run: who holds the first one may wait for that.
    assert isinstance(busy, RowsBusy)
    assert busy.keys == {(NAMESPACE, task_id(2))}
    again = runs(record(1), terminate(12), cached=[rows[0]], parents=busy.keys)
    answers = await two.second.transaction(again)
    assert isinstance(answers[1], Reported)
    assert await kinds(two.first, journal_id(2)) == [EntryKind.CHILD]


async def test_a_parent_that_is_free_is_locked_when_it_is_found(two: Two) -> None:
    rows = [run(1), child(11, 1), child(12, 1)]
    await insert(two.first, *rows)
    _, other = await two.overlap(
        runs(terminate(11)), runs(end(12), cached=[rows[2]]), second_waits=True
    )
    assert isinstance(other, list)
    assert await kinds(two.first, journal_id(1)) == [EntryKind.CHILD] * 2
    assert await live(two.first, 11, 12) == []


async def test_two_servers_close_different_owners(two: Two) -> None:
    children = [child(11, 1, is_held=False), child(12, 2, is_held=False)]
    await insert(two.first, *children)
    owners = [
        Closing(NAMESPACE, task_id(each), journal_id(each), is_group=False, ended_at_ms=NOW)
        for each in (1, 2)
    ]
    await two.first.transaction(lambda tx: closing_table.insert_closings(tx, owners))
    closing = runs(CloseChildren(amount=10))
    await two.overlap(closing, runs(CloseChildren(amount=10)), second_waits=False)
    assert await live(two.first, 11, 12) == []
    assert await two.first.transaction(closing_table.oldest_closing_ms) is None
