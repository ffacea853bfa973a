"""Whatever ends a child, its run hears of it once, in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tenure.core.journal.entry import EntryKind
from tenure.core.limits import DUE_BATCH_MAX
from tenure.core.run.record import Yield
from tenure.core.task.record import Reason, Spec, Task, TaskState
from tenure.core.task.retry import ErrorCategory, RetryPolicy
from tenure.engine.engine import Engine
from tenure.engine.run.command import RecordSteps, TerminateRun
from tenure.engine.task.command import (
    CancelTask,
    CompleteById,
    FinishKind,
    FinishTasks,
    ProcessDue,
    TerminateTask,
)
from tenure.engine.worker.command import DeregisterWorker
from tests.engine.damage import flips, stored, write
from tests.engine.run.children import (
    claim_children,
    ends,
    new_child,
    new_run,
    parent_of,
    resizer,
    spawn_children,
    states,
)
from tests.engine.run.runs import (
    AGAIN_SPEC,
    give_up_slot,
    kinds,
    positions,
    report,
    running_run,
    signal,
    start,
    terminate,
)
from tests.engine.world import FATAL, NAMESPACE, NEVER_MS, World, finish

ONCE: Final = Spec(start_to_close_ms=1_000, retry=RetryPolicy(maximum_attempts=1))


async def test_a_child_that_succeeds_stands_in_the_journal_of_its_run(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    child = new_child(world, "2/resize", index=4)
    (child_id,) = await spawn_children(engine, worker, run, child)
    (task,) = await claim_children(world, engine, other)
    await world.advance(30)
    await world.finish(engine, other, task, output=b"42", output_encoding="x")
    (entry,) = await ends(engine, run.id)
    content = entry.content
    assert (entry.pos, entry.kind, entry.key, content.index) == (1, EntryKind.CHILD, "2/resize", 4)
    assert (content.output, content.encoding, content.error) == (b"42", "x", None)
    assert (content.task_id, content.type, content.state) == (child_id, "resize", "succeeded")
    assert (content.attempts, content.took_ms, content.reason) == (1, 30, "")
    assert content.started_at_ms == task.handed_at_ms
    assert (entry.attempt, entry.no) == (0, 0)


End = Callable[[World, Engine, Task, str], Awaitable[Any]]


async def _fail(world: World, engine: Engine, task: Task, worker: str) -> None:
    await world.finish(engine, worker, task, FinishKind.FAILED, error=FATAL)


async def _exhaust(world: World, engine: Engine, task: Task, worker: str) -> None:
    await world.finish(engine, worker, task, FinishKind.FAILED)


async def _time_out(world: World, engine: Engine, _task: Task, _worker: str) -> None:
    await world.advance(2_000)
    await engine.submit(ProcessDue(sighted_ms=NEVER_MS, amount=DUE_BATCH_MAX))


async def _cancel(world: World, engine: Engine, task: Task, worker: str) -> None:
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id, reason="enough"))
    await world.finish(engine, worker, task, FinishKind.CANCELLED)


async def _terminate(_world: World, engine: Engine, task: Task, _worker: str) -> None:
    await engine.submit(TerminateTask(namespace=NAMESPACE, task_id=task.id))


async def _release_cancelled(world: World, engine: Engine, task: Task, worker: str) -> None:
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
    await world.finish(engine, worker, task, FinishKind.RELEASED)


async def _complete_by_id(_world: World, engine: Engine, task: Task, _worker: str) -> None:
    await engine.submit(CompleteById(namespace=NAMESPACE, finish=finish(task, output=b"1")))


async def _lose_after_cancel(world: World, engine: Engine, task: Task, worker: str) -> None:
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
    await engine.submit(DeregisterWorker(namespace=NAMESPACE, worker_id=worker))
    await world.settle(engine)


async def damage(world: World, task_id: str) -> None:
    """Damage what happened to a task so far."""
    row = await stored(world, "tasks", task_id)
    await write(world, "tasks", task_id, "progress", next(flips(row["progress"])))


async def _damage(world: World, engine: Engine, task: Task, worker: str) -> None:
    del engine
    await damage(world, task.id)
    elsewhere = await world.start()
    await world.finish(elsewhere, worker, task, FinishKind.RELEASED)


ENDS: Final[dict[str, tuple[End, str, str, ErrorCategory | None]]] = {
    "fatal": (_fail, "failed", "NON_RETRYABLE", ErrorCategory.DATA_QUALITY),
    "exhausted": (_exhaust, "failed", "RETRIES_EXHAUSTED", ErrorCategory.USER_CODE),
    "timed out": (_time_out, "failed", "START_TO_CLOSE", ErrorCategory.TIMEOUT),
    "cancelled": (_cancel, "cancelled", "", ErrorCategory.CANCELLED),
    "terminated": (_terminate, "failed", "TERMINATED", ErrorCategory.CANCELLED),
    "released after a cancel": (_release_cancelled, "cancelled", "", ErrorCategory.CANCELLED),
    "completed by id": (_complete_by_id, "succeeded", "", None),
    "lost after a cancel": (_lose_after_cancel, "cancelled", "", ErrorCategory.CANCELLED),
    "damaged": (_damage, "failed", "NON_RETRYABLE", ErrorCategory.DATA_QUALITY),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("is_remembered", [True, False])
async def test_each_end_of_a_child_is_heard_once(
    world: World, engine: Engine, how: str, *, is_remembered: bool
) -> None:
    end, state, reason, category = ENDS[how]
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker, new={"spec": ONCE})
    (task,) = await claim_children(world, engine, other)
    ending = engine if is_remembered else await world.start()
    await end(world, ending, task, other)
    assert (await world.task(task.id)).finished_at_ms is not None
    (entry,) = await ends(engine, run.id)
    content = entry.content
    assert (content.state, content.reason) == (state, reason)
    assert (None if content.error is None else content.error.category) == category
    if how not in ("damaged", "timed out"):
        await world.finish(ending, other, task)
        assert len(await ends(engine, run.id)) == 1


async def test_a_child_cancelled_before_its_first_attempt_is_heard(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run, (child_id,) = await parent_of(world, engine, worker)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=child_id, reason="enough"))
    (entry,) = await ends(engine, run.id)
    content = entry.content
    assert (content.state, content.attempts, content.started_at_ms) == ("cancelled", 0, 0)
    assert content.error is not None
    assert content.error.message == "enough"


async def test_a_child_that_nobody_may_get_is_heard(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, (child_id,) = await parent_of(world, engine, worker, new={"input": b"in"})
    await world.database.execute(f"UPDATE tasks SET input_checksum = 1 WHERE id = '{child_id}'")
    assert await claim_children(world, engine, other) == []
    assert await states(engine, run.id) == ["failed"]


async def test_a_child_that_is_retried_is_not_heard_yet(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, (child_id,) = await parent_of(world, engine, worker)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task, FinishKind.FAILED)
    assert await world.state(child_id) is TaskState.PENDING
    assert await ends(engine, run.id) == []


async def test_a_waiting_run_is_woken_by_its_child(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker)
    await give_up_slot(world, engine, worker, run)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task)
    assert await world.state(run.id) is TaskState.PENDING
    (again,) = await world.claim(engine, worker)
    assert again.link is not None
    assert again.link.page is not None
    assert [each.kind for each in again.link.page.entries] == [EntryKind.CHILD]


async def test_success_waits_for_patience_and_a_failure_does_not(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker, 4)
    await give_up_slot(world, engine, worker, run, patience_n=3, patience_ms=60_000)
    first, second, third, _ = await claim_children(world, engine, other)
    await world.finish(engine, other, first)
    assert await world.state(run.id) is TaskState.WAITING
    await world.finish(engine, other, second, FinishKind.FAILED, error=FATAL)
    assert await world.state(run.id) is TaskState.PENDING
    await world.finish(engine, other, third)
    assert await states(engine, run.id) == ["succeeded", "failed", "succeeded"]


async def test_many_ends_in_one_batch_wake_their_run_once(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, ids = await parent_of(world, engine, worker, 20)
    await give_up_slot(world, engine, worker, run, patience_n=5)
    version = (await world.task(run.id)).version
    tasks = await claim_children(world, engine, other)
    done = tuple(finish(task) for task in tasks)
    await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=other, items=done))
    assert (await world.task(run.id)).version == version + 1
    assert [each.content.task_id for each in await ends(engine, run.id)] == ids
    assert await kinds(engine, run.id) == [EntryKind.CHILD] * 20


async def test_the_holder_of_a_run_is_sent_what_its_child_came_to(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    sink, _ = await world.session(engine, worker)
    run, _ = await parent_of_session(world, engine, worker, sink)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task, output=b"1")
    ((told, page),) = sink.pages
    assert (told.task_id, told.attempt) == (run.id, run.attempt)
    assert [each.kind for each in page.entries] == [EntryKind.CHILD]


async def parent_of_session(
    world: World, engine: Engine, worker: str, sink: Any
) -> tuple[Task, list[str]]:
    """Return a run that a session has, and its child."""
    await start(world, engine)
    await world.settle(engine)
    (run,) = sink.take()
    await world.confirm(engine, worker, run)
    return run, await spawn_children(engine, worker, run, new_child(world))


async def test_a_run_that_has_ended_hears_nothing(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, worker, run)
    await world.finish(engine, other, task)
    assert await ends(engine, run.id) == []


async def test_a_run_that_began_anew_hears_nothing_of_earlier_children(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker, spec=AGAIN_SPEC)
    await spawn_children(engine, worker, run, new_child(world))
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, worker, run, FinishKind.FAILED)
    await world.finish(engine, other, task)
    assert await ends(engine, run.id) == []


async def test_a_yield_and_the_end_of_a_child_in_one_batch_lose_no_wake_up(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker, 2)
    first, second = await claim_children(world, engine, other)
    # Together: whatever order they are decided in.
    for task in (first, second):
        version = (await world.task(run.id)).version
        done = FinishTasks(namespace=NAMESPACE, worker_id=other, items=(finish(task),))
        kind, fields = FinishKind.YIELDED, {"wish": _seen(len(await ends(engine, run.id)))}
        gone = FinishTasks(
            namespace=NAMESPACE, worker_id=worker, items=(finish(run, kind, **fields),)
        )
        pair = (gone, done) if task is first else (done, gone)
        futures = [engine.submit(each) for each in pair]
        for future in futures:
            await future
        row = await world.task(run.id)
        assert (row.state, row.version) == (TaskState.PENDING, version + 1)
        (run,) = await world.claim(engine, worker)
    assert await states(engine, run.id) == ["succeeded", "succeeded"]


def _seen(count: int) -> Yield:
    return Yield(seen=count)


async def test_steps_of_a_run_and_ends_of_its_children_share_a_batch(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker, 2)
    tasks = await claim_children(world, engine, other)
    await positions(engine, worker, report(run))
    done = tuple(finish(task) for task in tasks)
    futures: list[Any] = [
        engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=other, items=done)),
        engine.submit(
            RecordSteps(namespace=NAMESPACE, worker_id=worker, items=(report(run, first_no=2),))
        ),
        engine.submit(TerminateRun(namespace=NAMESPACE, run_id=run.id)),
    ]
    for future in futures:
        await future
    assert await kinds(engine, run.id) == [EntryKind.STEP] * 2


async def test_a_child_ended_with_copies_of_its_run_is_decided_on_its_row(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run, (child_id,) = await parent_of(world, engine, worker)
    await positions(engine, worker, report(run))
    steps = RecordSteps(namespace=NAMESPACE, worker_id=worker, items=(report(run, first_no=2),))
    cancel = CancelTask(namespace=NAMESPACE, task_id=child_id)
    futures: list[Any] = [engine.submit(steps), engine.submit(cancel)]
    for future in futures:
        await future
    assert await kinds(engine, run.id) == [EntryKind.STEP, EntryKind.STEP, EntryKind.CHILD]


async def test_a_child_ends_at_another_server_than_its_run_is_held(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker)
    (task,) = await claim_children(world, engine, other)
    await positions(engine, worker, report(run))
    elsewhere = await world.start()
    await world.finish(elsewhere, other, task)
    # What this server remembers of the journal is stale now.
    assert await positions(engine, worker, report(run, first_no=2)) == [3]
    assert await kinds(engine, run.id) == [EntryKind.STEP, EntryKind.CHILD, EntryKind.STEP]


async def test_a_child_run_is_heard_by_its_run_and_hears_its_own(
    world: World, engine: Engine
) -> None:
    worker, shipper = await world.worker(engine), await world.worker(engine, "ship")
    other = await resizer(world, engine)
    run = await running_run(world, engine, worker)
    await spawn_children(engine, worker, run, new_run(world))
    (child,) = await claim_children(world, engine, shipper, "ship")
    await spawn_children(engine, shipper, child, new_child(world))
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task)
    assert await states(engine, child.id) == ["succeeded"]
    assert await ends(engine, run.id) == []
    await signal(engine, child.id)
    await world.finish(engine, shipper, child, output=b"9")
    (entry,) = await ends(engine, run.id)
    assert (entry.content.output, entry.content.started_at_ms) == (b"9", child.handed_at_ms)


async def test_a_terminated_child_run_is_heard(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    (child_id,) = await spawn_children(engine, worker, run, new_run(world))
    await terminate(engine, child_id)
    (entry,) = await ends(engine, run.id)
    assert entry.content.reason == Reason.TERMINATED.value


async def test_a_damaged_run_ends_when_its_child_does_and_its_own_run_hears(
    world: World, engine: Engine
) -> None:
    worker, shipper = await world.worker(engine), await world.worker(engine, "ship")
    other = await resizer(world, engine)
    run = await running_run(world, engine, worker)
    await spawn_children(engine, worker, run, new_run(world))
    (child,) = await claim_children(world, engine, shipper, "ship")
    await spawn_children(engine, shipper, child, new_child(world))
    (task,) = await claim_children(world, engine, other)
    await give_up_slot(world, engine, shipper, child)
    await damage(world, child.id)
    await world.finish(engine, other, task)
    assert await world.state(child.id) is TaskState.FAILED
    assert await states(engine, run.id) == ["failed"]


async def test_plain_tasks_pay_no_statement_for_this(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    world.faults.points.clear()
    await world.finish(engine, worker, task)
    assert not {"lock_free_tasks", "insert_closings", "load_tasks"} & set(world.faults.points)
