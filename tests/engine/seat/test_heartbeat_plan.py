"""Each issue of the plan for heartbeats that the controller sends, and each point of its end state.

The names of the tests are those of the plan.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure.core.limits import SERVED_FAILURES_MAX
from tenure.core.seat.kill import KillReason
from tenure.core.task.attempt import Attempt, Outcome
from tenure.core.task.record import Task, TaskState
from tenure.core.worker.record import WorkerStatus
from tenure.engine.command import TaskRef
from tenure.engine.read import query
from tenure.engine.services.server_row import ServerTouch
from tenure.engine.task.command import CancelTask, FinishKind
from tenure.store.table import task as task_table
from tests.engine.seat.served import ServedInMemory, ServedWorld
from tests.engine.world import NAMESPACE, NEVER_MS


async def begun(served: ServedWorld, *, count: int = 1) -> tuple[ServedInMemory, list[TaskRef]]:
    """Return a worker that has confirmed so many tasks."""
    worker = await served.worker("mail")
    await served.round()
    await served.call(worker)
    for _ in range(count):
        await served.world.add(served.engine)
    await served.call(worker)
    await served.call(worker)
    assert len(worker.running) == count
    return worker, list(worker.running)


async def task_of(served: ServedWorld, ref: TaskRef) -> Task:
    return await served.world.task(ref.task_id, served.engine)


async def first_attempt(served: ServedWorld, ref: TaskRef) -> Attempt:
    key = (NAMESPACE, ref.task_id)
    found = await served.engine.store.read(
        lambda tx: task_table.find_attempts(tx, key, after=0, amount=1)
    )
    return found[0]


async def failures(served: ServedWorld, worker: ServedInMemory) -> int:
    view = await query.get_worker(
        served.engine.store, namespace=NAMESPACE, worker_id=worker.worker_id
    )
    return view.lease.failures if view.lease is not None else -1


async def test_issue_1_a_call_that_times_out_crashes_nothing_and_counts_as_a_failure(
    served: ServedWorld,
) -> None:
    worker, (ref,) = await begun(served)
    worker.failure = TimeoutError()
    other = await served.worker("mail", address="127.0.0.2:7310")
    await served.round()
    await served.call(worker)
    assert await failures(served, worker) == 1
    assert await served.call(other) is not None
    assert (await task_of(served, ref)).state is TaskState.RUNNING


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyError("x"), OSError("gone")])
async def test_issue_1_whatever_a_call_raises_ends_nothing(
    served: ServedWorld, error: Exception
) -> None:
    worker, _ = await begun(served)
    worker.failure = error
    await served.call(worker)
    assert await failures(served, worker) == 1
    worker.failure = None
    assert await served.call(worker) is not None
    assert await failures(served, worker) == 0


async def test_issue_1_what_a_failed_call_carried_is_carried_by_the_next(
    served: ServedWorld,
) -> None:
    worker = await served.worker("mail")
    await served.round()
    await served.call(worker)
    await served.world.add(served.engine)
    worker.loses_answer = True
    await served.call(worker)
    worker.loses_answer = False
    call = await served.call(worker)
    assert call is not None
    assert len(call.tasks) == 1
    assert len(worker.begun) == 1
    assert (await task_of(served, worker.begun[0])).state is TaskState.RUNNING


async def test_issue_2_only_the_lease_counts_failures_and_any_answer_resets_them(
    served: ServedWorld,
) -> None:
    worker, _ = await begun(served)
    for count in (1, 2):
        worker.failure = OSError("gone")
        await served.call(worker)
        assert await failures(served, worker) == count
    worker.failure = None
    await served.call(worker)
    assert await failures(served, worker) == 0


async def test_issue_2_a_failure_of_a_former_owner_counts_for_nothing(served: ServedWorld) -> None:
    worker, _ = await begun(served)
    world = served.world
    await world.advance(served.engine.settings.seat_stale_ms + 1)
    second = await world.start(served_call_gap_ms=NEVER_MS, served_tick_ms=NEVER_MS)
    await ServerTouch().run_once(second)
    second.seats.open(served.caller)
    former = served.driver(worker)
    await served.round(second)
    await served.call(worker, second)
    worker.failure = OSError("refused")
    await former.call()
    assert await failures(served, worker) == 0


async def test_issue_4_a_reported_task_that_is_unknown_or_finished_is_killed(
    served: ServedWorld,
) -> None:
    worker, (ref,) = await begun(served)
    unknown = TaskRef(served.world.clock.new_id(), 1)
    worker.running[unknown] = None
    worker.finish(ref)
    await served.call(worker)
    worker.running[ref] = None
    await served.call(worker)
    await served.call(worker)
    told = {(kill.task_id, kill.attempt) for kill in worker.kills}
    assert told == {(unknown.task_id, 1), (ref.task_id, ref.attempt)}
    assert {kill.reason for kill in worker.kills} == {KillReason.NOT_HELD}


async def test_issue_4_a_restarted_server_kills_nothing_that_is_known(served: ServedWorld) -> None:
    worker, refs = await begun(served, count=3)
    await served.world.kill(served.engine)
    await served.world.advance(10_000)
    engine = await served.world.start(served_call_gap_ms=NEVER_MS, served_tick_ms=NEVER_MS)
    await ServerTouch().run_once(engine)
    engine.seats.open(served.caller)
    await served.round(engine)
    await served.call(worker, engine)
    assert worker.kills == []
    for ref in refs:
        task = await served.world.task(ref.task_id, engine)
        assert (task.state, task.attempt) == (TaskState.RUNNING, 1)


async def test_issue_4_an_attempt_that_was_given_away_is_killed_and_the_next_one_is_not(
    served: ServedWorld,
) -> None:
    worker, (ref,) = await begun(served)
    worker.running.clear()
    await served.call(worker)
    await served.call(worker)
    again = TaskRef(ref.task_id, 2)
    assert again in worker.running
    worker.running[ref] = None
    await served.call(worker)
    await served.call(worker)
    first = worker.kills[0]
    assert (first.task_id, first.attempt) == (ref.task_id, 1)
    assert {kill.attempt for kill in worker.kills} == {1}


async def test_end_state_1_health_is_in_one_place_and_unreachable_needs_lease_and_failures(
    served: ServedWorld,
) -> None:
    worker, _ = await begun(served)
    worker.failure = OSError("gone")
    for _ in range(SERVED_FAILURES_MAX):
        await served.call(worker)
    view = await query.get_worker(
        served.engine.store, namespace=NAMESPACE, worker_id=worker.worker_id
    )
    assert (view.worker.status, view.health) == (WorkerStatus.ONLINE, "late")
    assert view.held.count == 1


async def test_end_state_2_a_slow_worker_delays_no_other(served: ServedWorld) -> None:
    slow = await served.worker("mail")
    hanging = asyncio.Event()
    slow.before = hanging.wait  # type: ignore[assignment]  # what it returns is not used
    others = [await served.worker("mail", address=f"127.0.1.{each}:1") for each in range(5)]
    await served.round()
    for other in others:
        assert await served.call(other) is not None
    assert slow.calls == []
    hanging.set()


async def test_end_state_4_a_missing_task_is_found_with_the_first_answer_that_lacks_it(
    served: ServedWorld,
) -> None:
    worker, (ref,) = await begun(served)
    worker.running.clear()
    await served.call(worker)
    ended = await first_attempt(served, ref)
    assert ended.outcome is Outcome.LOST_TASK


async def test_end_state_4_a_carried_task_in_neither_list_is_undelivered_at_once(
    served: ServedWorld,
) -> None:
    worker = await served.worker("mail")
    await served.round()
    await served.call(worker)
    await served.world.add(served.engine)
    worker.change = lambda answer: replace(answer, running=())
    await served.call(worker)
    ref = worker.begun[0]
    ended = await first_attempt(served, ref)
    assert ended.outcome is Outcome.UNDELIVERED


async def test_a_completion_is_kept_until_its_ack_and_counts_once(served: ServedWorld) -> None:
    worker, (ref,) = await begun(served)
    worker.finish(ref)
    worker.loses_answer = True
    await served.call(worker)
    assert (await task_of(served, ref)).state is TaskState.RUNNING
    worker.loses_answer = False
    await served.call(worker)
    assert (await task_of(served, ref)).state is TaskState.SUCCEEDED
    await served.call(worker)
    assert [(ack.ref, ack.is_finish) for ack in worker.acks] == [(ref, True)]
    assert worker.completed == {}


async def test_the_grace_of_a_cancel_begins_with_the_answered_call_that_carried_it(
    served: ServedWorld,
) -> None:
    worker, (ref,) = await begun(served)
    await served.engine.submit(CancelTask(namespace=NAMESPACE, task_id=ref.task_id))
    worker.failure = OSError("gone")
    await served.call(worker)
    assert (await task_of(served, ref)).progress.grace_at_ms == 0
    worker.failure = None
    await served.world.advance(1_000)
    await served.call(worker)
    assert (await task_of(served, ref)).progress.grace_at_ms == served.world.clock.now_ms()
    assert worker.kills[-1].reason is KillReason.CANCEL
    worker.finish(ref, FinishKind.CANCELLED)
    await served.call(worker)
    assert (await task_of(served, ref)).state is TaskState.CANCELLED


@pytest.mark.parametrize(
    "change",
    [
        {"worker_id": "other"},
        {"call_no": 99},
        {"total_completed": -1},
        {"active_count": -1},
        {"window": -1},
        {"running": tuple(TaskRef(f"00000000-0000-7000-8000-{x:012x}", 1) for x in range(10_001))},
        {"running": (TaskRef("", 1),)},
        {"running": (TaskRef("00000000-0000-7000-8000-000000000001", -1),)},
    ],
    ids=["worker", "call", "total", "active", "window", "too many", "no id", "attempt"],
)
async def test_a_broken_answer_is_a_failed_call_and_changes_nothing(
    served: ServedWorld, change: dict[str, object]
) -> None:
    worker, (ref,) = await begun(served)
    before = await served.world.database.dump("tasks")
    worker.change = lambda answer: replace(answer, **change)
    await served.call(worker)
    assert await served.world.database.dump("tasks") == before
    assert await failures(served, worker) == 1
    assert (await task_of(served, ref)).state is TaskState.RUNNING


async def test_while_the_last_call_failed_a_worker_keeps_its_work_and_gets_none(
    served: ServedWorld,
) -> None:
    worker, (ref,) = await begun(served)
    worker.failure = OSError("gone")
    await served.call(worker)
    (task_id,) = await served.world.add(served.engine)
    assert (await served.world.task(task_id, served.engine)).state is TaskState.PENDING
    assert (await task_of(served, ref)).state is TaskState.RUNNING
    worker.failure = None
    await served.call(worker)
    assert (await served.world.task(task_id, served.engine)).state is TaskState.DISPATCHED
