"""Timers: each timeout of a task, judged again by the due service, and the rules of sight."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import StopCause
from tenure.core.task.record import Reason, TaskState
from tenure.core.task.retry import RetryPolicy
from tenure.engine.engine import Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import (
    Finish,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    Reported,
    TaskBeat,
)
from tests.engine.world import NAMESPACE, World, spec, stop

ONCE = RetryPolicy(maximum_attempts=1)


async def beat(engine: Engine, worker: str, task_id: str, attempt: int = 1) -> Any:
    item = TaskBeat(task_id=task_id, attempt=attempt)
    command = HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=(item,))
    (answer,) = await engine.submit(command)
    return answer


class TestDelivery:
    async def test_an_unconfirmed_task_is_pending_again_after_the_delivery_timeout(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker, spec=spec(delivery_timeout_ms=3_000))
        await world.watch(engine, 2_999)
        assert (await DueTasks().run_once(engine)).count == 0
        await world.watch(engine, 1)
        assert (await DueTasks().run_once(engine)).count == 1
        stored = await world.task(task.id)
        assert (stored.state, stored.last_outcome) == (TaskState.PENDING, Outcome.UNDELIVERED)
        assert stored.progress.interruption_count == 0

    async def test_a_confirmed_task_is_kept(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.watch(engine, 30_000)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.RUNNING

    async def test_a_blind_server_does_not_judge_a_delivery(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker, spec=spec(delivery_timeout_ms=3_000))
        await world.watch(engine, 1_000)
        await world.advance(5_000)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.DISPATCHED
        await world.watch(engine, 2_500)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.DISPATCHED
        await world.watch(engine, 1_000)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.PENDING

    async def test_a_server_that_just_started_does_not_judge_a_delivery(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker, spec=spec(delivery_timeout_ms=3_000))
        await world.advance(10_000)
        other = await world.start()
        await world.watch(other, 1_000)
        await world.round(DueTasks(), other)
        assert await world.state(task.id) is TaskState.DISPATCHED


class TestStartToClose:
    async def test_an_attempt_that_takes_too_long_is_retried(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        sink, _ = await world.session(engine, worker, window=1)
        await world.add(engine, spec=spec(start_to_close_ms=5_000))
        await world.settle(engine)
        (task,) = sink.take()
        await world.confirm(engine, worker, task)
        await world.advance(4_999)
        assert (await DueTasks().run_once(engine)).count == 0
        await world.advance(1)
        await world.round(DueTasks(), engine)
        stored = await world.task(task.id)
        assert (stored.state, stored.last_outcome) == (TaskState.PENDING, Outcome.TIMED_OUT)
        assert stored.run_at_ms == world.clock.now_ms() + 1_000
        assert sink.stopped == [stop(task, StopCause.TIMED_OUT)]

    async def test_without_retries_it_fails_with_the_timeout_as_reason(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker, spec=spec(start_to_close_ms=5_000, retry=ONCE))
        await world.advance(5_000)
        await world.round(DueTasks(), engine)
        stored = await world.task(task.id)
        assert (stored.state, stored.progress.reason) == (TaskState.FAILED, Reason.START_TO_CLOSE)


class TestSchedule:
    async def test_a_task_that_nobody_starts_in_time_fails_for_good(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine, spec=spec(schedule_to_start_ms=5_000))
        await world.advance(5_000)
        await world.round(DueTasks(), engine)
        stored = await world.task(task_id)
        assert stored.state is TaskState.FAILED
        assert stored.progress.reason is Reason.SCHEDULE_TO_START
        assert await world.claim(engine, worker) == ()

    async def test_schedule_to_start_runs_anew_for_each_return(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker, spec=spec(schedule_to_start_ms=5_000))
        await world.advance(4_000)
        await world.finish(engine, worker, task, FinishKind.RELEASED)
        await world.advance(4_000)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.PENDING
        await world.advance(1_000)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.FAILED

    async def test_schedule_to_close_ends_all_attempts(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(schedule_to_close_ms=5_000))
        await world.advance(5_000)
        await world.round(DueTasks(), engine)
        stored = await world.task(task.id)
        assert stored.state is TaskState.FAILED
        assert stored.progress.reason is Reason.SCHEDULE_TO_CLOSE

    async def test_a_retry_that_would_start_after_the_close_is_not_scheduled(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(schedule_to_close_ms=900))
        await world.finish(engine, worker, task, FinishKind.FAILED)
        assert (await world.task(task.id)).progress.reason is Reason.SCHEDULE_TO_CLOSE


class TestHeartbeatTimeout:
    async def test_a_silent_attempt_is_retried(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(heartbeat_timeout_ms=2_000))
        await world.watch(engine, 2_000)
        await world.round(DueTasks(), engine)
        stored = await world.task(task.id)
        assert (stored.state, stored.last_outcome) == (TaskState.PENDING, Outcome.TIMED_OUT)

    async def test_a_heartbeat_writes_no_timer_and_the_early_one_is_armed_again(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(heartbeat_timeout_ms=2_000))
        due_at_ms = task.due_at_ms
        await world.watch(engine, 1_500)
        await beat(engine, worker, task.id)
        assert (await world.task(task.id)).due_at_ms == due_at_ms
        await world.watch(engine, 500)
        await world.round(DueTasks(), engine)
        stored = await world.task(task.id)
        assert stored.state is TaskState.RUNNING
        assert stored.due_at_ms == world.clock.now_ms() + 1_500
        await world.watch(engine, 1_500)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.PENDING

    async def test_without_retries_the_reason_is_the_heartbeat(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        wished = spec(heartbeat_timeout_ms=2_000, retry=ONCE)
        task = await world.running(engine, worker, spec=wished)
        await world.watch(engine, 2_000)
        await world.round(DueTasks(), engine)
        assert (await world.task(task.id)).progress.reason is Reason.HEARTBEAT_TIMEOUT

    async def test_an_attempt_completed_from_elsewhere_may_beat_too(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(heartbeat_timeout_ms=2_000))
        await world.finish(engine, worker, task, FinishKind.DEFERRED)
        await world.watch(engine, 1_500)
        command = HeartbeatTasks(
            namespace=NAMESPACE, worker_id=None, items=(TaskBeat(task_id=task.id, attempt=1),)
        )
        await engine.submit(command)
        await world.watch(engine, 1_500)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.WAITING
        await world.watch(engine, 500)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.PENDING


class TestDueService:
    async def test_it_takes_bounded_batches_and_says_that_there_is_more(
        self, world: World, engine: Engine
    ) -> None:
        run_at_ms = world.clock.now_ms() + 1_000
        for _ in range(2):
            await world.add(engine, 400, run_at_ms=run_at_ms)
        await world.advance(1_000)
        first = await DueTasks().run_once(engine)
        second = await DueTasks().run_once(engine)
        assert [(each.count, each.has_more) for each in (first, second)] == [
            (500, True),
            (300, False),
        ]

    async def test_two_servers_that_look_at_once_do_it_once(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        (task_id,) = await world.add(engine, spec=spec(schedule_to_close_ms=1_000))
        await world.advance(1_000)
        reports = [await DueTasks().run_once(each) for each in (engine, other)]
        assert [report.count for report in reports] == [1, 0]
        assert (await world.task(task_id)).state is TaskState.FAILED

    async def test_a_completion_in_the_same_batch_comes_first(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(start_to_close_ms=1_000))
        await world.advance(1_000)
        items = (Finish(task_id=task.id, attempt=1, kind=FinishKind.SUCCEEDED),)
        report = FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items)
        finished, due = engine.submit(report), DueTasks().run_once(engine)
        await due
        assert await finished == (Reported(TaskState.SUCCEEDED),)
        assert await world.state(task.id) is TaskState.SUCCEEDED

    async def test_the_jump_of_the_clock_forwards_does_not_end_a_delivery(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        await world.watch(engine, 19_000)
        await world.jump(3_600_000 // 10)
        await world.watch(engine, 500)
        await world.round(DueTasks(), engine)
        assert await world.state(task.id) is TaskState.DISPATCHED


@pytest.mark.parametrize("count", [1, 3])
async def test_the_alarm_is_set_for_the_nearest_due_instant(
    world: World, engine: Engine, count: int
) -> None:
    now_ms = world.clock.now_ms()
    for number in reversed(range(count)):
        await world.add(engine, run_at_ms=now_ms + 1_000 * (number + 1))
    await world.advance(1_000)
    await engine.alarm.wait(world.clock, most_ms=60_000)
