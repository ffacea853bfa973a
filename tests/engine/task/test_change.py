"""What clients and operators ask of a task: cancel, pause, resume, retry, terminate."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Line, Reason, TaskState
from tenure.engine.engine import Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import (
    CancelTask,
    Enqueued,
    FinishKind,
    HeartbeatTasks,
    PauseTask,
    Reported,
    ResumeTask,
    RetryTask,
    TaskBeat,
    TerminateTask,
)
from tenure.engine.worker.command import EvictWorker
from tenure.errors import AlreadyExists, NotFound, TaskAlreadyTerminal, WrongState
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World, codes, ref, spec

Change: Any = CancelTask | PauseTask | ResumeTask | TerminateTask
ALL: Any = [CancelTask, PauseTask, ResumeTask, TerminateTask]


async def ask(engine: Engine, kind: Any, task_id: str, **fields: Any) -> Reported:
    command = kind(**{"namespace": NAMESPACE, "task_id": task_id, **fields})
    answer: Reported = await engine.submit(command)
    return answer


class TestCancel:
    async def test_a_pending_task_is_cancelled_at_once(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        assert (await ask(engine, CancelTask, task_id)).state is TaskState.CANCELLED
        assert await world.claim(engine, worker) == ()
        stored = await world.task(task_id)
        assert (stored.state, stored.attempt) == (TaskState.CANCELLED, 0)

    async def test_a_dispatched_task_is_cancelled_and_its_confirmation_says_so(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        await ask(engine, CancelTask, task.id)
        (answer,) = await world.confirm(engine, worker, task)
        fields = {"state": "CANCELLED", "reason": "cancelled"}
        assert (answer.code, answer.fields) == ("task_already_terminal", fields)

    async def test_a_running_task_is_cancelling_until_its_worker_says_so(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        answer = await ask(engine, CancelTask, task.id, reason="too late")
        assert answer == Reported(TaskState.CANCELLING, True, "too late")  # noqa: FBT003
        assert (await world.task(task.id)).progress.grace_at_ms == 0
        assert codes([await world.finish(engine, worker, task, FinishKind.CANCELLED)]) == [
            "cancelled"
        ]

    @pytest.mark.parametrize(
        ("kind", "state"),
        [
            (FinishKind.SUCCEEDED, "succeeded"),
            (FinishKind.FAILED, "cancelled"),
            (FinishKind.RELEASED, "cancelled"),
        ],
    )
    async def test_nothing_is_retried_after_a_cancel_request(
        self, world: World, engine: Engine, kind: FinishKind, state: str
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await ask(engine, CancelTask, task.id)
        assert codes([await world.finish(engine, worker, task, kind)]) == [state]

    async def test_a_session_is_told_and_the_grace_runs_from_there(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        sink, _ = await world.session(engine, worker)
        await world.add(engine)
        await world.settle(engine)
        (task,) = sink.take()
        await world.confirm(engine, worker, task)
        await world.advance(5)
        await ask(engine, CancelTask, task.id)
        await world.settle(engine)
        assert sink.cancelled == [ref(task)]
        stored = await world.task(task.id)
        assert stored.progress.grace_at_ms == world.clock.now_ms()
        assert stored.due_at_ms == world.clock.now_ms() + 30_000

    async def test_the_answer_to_a_report_carries_the_signal(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await ask(engine, CancelTask, task.id, reason="why")
        await world.advance(10)
        command = HeartbeatTasks(
            namespace=NAMESPACE, worker_id=worker, items=(TaskBeat(task_id=task.id, attempt=1),)
        )
        (answer,) = await engine.submit(command)
        assert isinstance(answer, Reported)
        assert (answer.should_cancel, answer.cancel_reason) == (True, "why")
        assert (await world.task(task.id)).progress.grace_at_ms == world.clock.now_ms()

    async def test_after_the_grace_the_task_has_failed(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(cancel_grace_ms=2_000))
        await ask(engine, CancelTask, task.id)
        await world.confirm(engine, worker, task)
        await world.watch(engine, 2_000)
        await world.round(DueTasks(), engine)
        stored = await world.task(task.id)
        assert stored.state is TaskState.FAILED
        assert stored.progress.reason is Reason.CANCEL_TIMEOUT

    async def test_a_lost_worker_cancels_what_was_to_be_cancelled(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await ask(engine, CancelTask, task.id)
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
        await world.settle(engine)
        stored = await world.task(task.id)
        assert (stored.state, stored.last_outcome) == (TaskState.CANCELLED, Outcome.WORKER_LOST)

    async def test_cancelling_twice_is_fine(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await ask(engine, CancelTask, task.id, reason="first")
        before = await world.dump("tasks")
        answer = await ask(engine, CancelTask, task.id, reason="second")
        assert (answer.state, answer.cancel_reason) == (TaskState.CANCELLING, "first")
        assert await world.dump("tasks") == before

    async def test_a_cancel_is_not_lost_by_a_remembered_row(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await ask(other, CancelTask, task.id)
        (answer,) = await world.confirm(engine, worker, task)
        assert answer.should_cancel


class TestPause:
    async def test_a_paused_task_is_not_handed_out_until_it_goes_on(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        assert (await ask(engine, PauseTask, task_id)).state is TaskState.PAUSED
        assert await world.claim(engine, worker) == ()
        assert (await ask(engine, ResumeTask, task_id)).state is TaskState.PENDING
        assert [task.id for task in await world.claim(engine, worker)] == [task_id]

    async def test_resuming_wakes_a_poll_that_waits(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        await ask(engine, PauseTask, task_id)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        assert not poll.done()
        await ask(engine, ResumeTask, task_id)
        assert [task.id for task in await poll] == [task_id]

    async def test_a_held_task_is_paused_when_its_attempt_ends(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        assert (await ask(engine, PauseTask, task.id)).state is TaskState.RUNNING
        answer = await world.finish(engine, worker, task, FinishKind.FAILED)
        assert codes([answer]) == ["paused"]
        assert (await ask(engine, ResumeTask, task.id)).state is TaskState.PENDING
        assert (await world.task(task.id)).line is Line.NONE

    async def test_a_wish_to_pause_can_be_taken_back(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await ask(engine, PauseTask, task.id)
        assert (await ask(engine, ResumeTask, task.id)).state is TaskState.RUNNING
        answer = await world.finish(engine, worker, task, FinishKind.RELEASED)
        assert codes([answer]) == ["pending"]

    async def test_the_end_of_everything_goes_on_while_paused(
        self, world: World, engine: Engine
    ) -> None:
        (task_id,) = await world.add(engine, spec=spec(schedule_to_close_ms=1_000))
        await ask(engine, PauseTask, task_id)
        await world.advance(1_000)
        await world.round(DueTasks(), engine)
        assert (await world.task(task_id)).progress.reason is Reason.SCHEDULE_TO_CLOSE

    async def test_what_is_not_paused_cannot_go_on(self, world: World, engine: Engine) -> None:
        (task_id,) = await world.add(engine)
        with pytest.raises(WrongState) as caught:
            await ask(engine, ResumeTask, task_id)
        assert caught.value.fields == {"state": "PENDING"}


class TestTerminate:
    @pytest.mark.parametrize("is_held", [True, False])
    async def test_a_terminated_task_has_failed_whatever_its_worker_does(
        self, world: World, engine: Engine, is_held: bool
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        if is_held:
            await world.claim(engine, worker)
        assert (await ask(engine, TerminateTask, task_id)).state is TaskState.FAILED
        assert (await world.task(task_id)).progress.reason is Reason.TERMINATED


class TestRetry:
    async def retry(self, engine: Engine, task_id: str, new_task_id: str) -> Enqueued:
        command = RetryTask(namespace=NAMESPACE, task_id=task_id, new_task_id=new_task_id)
        answer: Enqueued = await engine.submit(command)
        return answer

    async def test_a_retry_is_a_new_task_of_the_same_content(
        self, world: World, engine: Engine
    ) -> None:
        new = world.new(input=b"in", priority=1, labels={"a": "b"}, idempotency_key="k")
        await world.enqueue(engine, new)
        await ask(engine, CancelTask, new.id)
        await world.advance(10)
        new_id = world.clock.new_id()
        assert await self.retry(engine, new.id, new_id) == Enqueued(
            new_id, TaskState.PENDING, is_new=True
        )
        task = await world.task(new_id)
        assert (task.spec.retry_of, task.spec.idempotency_key) == (new.id, "k")
        assert (task.input, task.priority, task.labels) == (b"in", 1, {"a": "b"})
        assert (task.attempt, task.created_at_ms) == (0, world.clock.now_ms())
        assert await world.state(new.id) is TaskState.CANCELLED

    async def test_a_repeated_retry_returns_the_task_that_it_made(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        await ask(engine, CancelTask, task_id)
        new_id = world.clock.new_id()
        await self.retry(engine, task_id, new_id)
        again = await self.retry(engine, task_id, new_id)
        assert again == Enqueued(new_id, TaskState.PENDING, is_new=False)
        (task,) = await world.claim(engine, worker)
        await world.finish(engine, worker, task)
        again = await self.retry(engine, task_id, new_id)
        assert again == Enqueued(new_id, TaskState.SUCCEEDED, is_new=False)
        assert (await world.dump("tasks"))["tasks"] == []

    async def test_an_id_of_another_task_is_refused(self, world: World, engine: Engine) -> None:
        task_id, other = await world.add(engine, 2)
        await ask(engine, CancelTask, task_id)
        before = await world.dump()
        with pytest.raises(AlreadyExists):
            await self.retry(engine, task_id, other)
        with pytest.raises(AlreadyExists):
            await self.retry(engine, task_id, task_id)
        assert await world.dump() == before

    async def test_a_live_task_is_not_retried(self, world: World, engine: Engine) -> None:
        (task_id,) = await world.add(engine)
        with pytest.raises(WrongState) as caught:
            await self.retry(engine, task_id, world.clock.new_id())
        assert caught.value.fields == {"state": "PENDING"}
        with pytest.raises(NotFound):
            await self.retry(engine, world.clock.new_id(), world.clock.new_id())


@pytest.mark.parametrize("kind", ALL)
async def test_a_task_of_another_namespace_is_not_found(
    world: World, engine: Engine, kind: Any
) -> None:
    (task_id,) = await world.add(engine)
    before = await world.dump()
    with pytest.raises(NotFound):
        await ask(engine, kind, task_id, namespace=OTHER_NAMESPACE)
    with pytest.raises(NotFound):
        await ask(engine, kind, world.clock.new_id())
    assert await world.dump() == before


@pytest.mark.parametrize("kind", ALL)
async def test_a_finished_task_never_changes(world: World, engine: Engine, kind: Any) -> None:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    await world.finish(engine, worker, task)
    before = await world.dump()
    error = TaskAlreadyTerminal if kind in (CancelTask, TerminateTask) else WrongState
    with pytest.raises(error) as caught:
        await ask(engine, kind, task.id)
    assert caught.value.fields == {"state": "SUCCEEDED"}
    assert await world.dump() == before
