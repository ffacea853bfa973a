"""What workers report: confirmations, progress, the end of attempts, and reports that are late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.task.attempt import Outcome
from tenure.core.task.record import NO_PROGRESS, AttemptProgress, Line, Reason, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import (
    CompleteById,
    ConfirmTasks,
    Finish,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    Reported,
    TaskBeat,
)
from tenure.engine.worker.command import EvictWorker
from tenure.errors import NotFound, Rejection, TaskAlreadyTerminal, WrongState
from tests.engine.world import (
    FATAL,
    FAULT,
    NAMESPACE,
    OTHER_NAMESPACE,
    World,
    codes,
    finish,
    ref,
    spec,
)


def refusal(answer: object) -> Rejection:
    assert isinstance(answer, Rejection), answer
    return answer


async def complete_by_id(engine: Engine, task_id: str, **fields: Any) -> Any:
    fields = {"attempt": 0, "kind": FinishKind.SUCCEEDED, **fields}
    item = Finish(task_id=task_id, **fields)
    return await engine.submit(CompleteById(namespace=NAMESPACE, finish=item))


class TestConfirm:
    async def test_a_confirmed_task_is_running(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        await world.advance(5)
        assert codes(await world.confirm(engine, worker, task)) == ["running"]
        stored = await world.task(task.id)
        assert stored.state is TaskState.RUNNING
        assert stored.progress.confirmed_at_ms == world.clock.now_ms()

    async def test_confirming_twice_changes_nothing(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        before = await world.dump("tasks")
        await world.advance(5)
        assert codes(await world.confirm(engine, worker, task)) == ["running"]
        assert await world.dump("tasks") == before

    async def test_a_refused_item_disturbs_no_other(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        good, bad = await world.held(engine, worker), await world.held(engine, worker)
        refs = (TaskRef(bad.id, 2), ref(good), TaskRef(world.clock.new_id(), 1))
        command = ConfirmTasks(namespace=NAMESPACE, worker_id=worker, items=refs)
        answers = await engine.submit(command)
        assert codes(answers) == ["attempt_mismatch", "running", "not_found"]

    async def test_another_namespace_knows_neither_the_worker_nor_the_task(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        command = ConfirmTasks(namespace=OTHER_NAMESPACE, worker_id=worker, items=(ref(task),))
        assert codes(await engine.submit(command)) == ["worker_inactive"]


class TestTaskHeartbeats:
    async def beat(self, engine: Engine, worker: str, *beats: TaskBeat) -> list[Any]:
        command = HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=beats)
        return list(await engine.submit(command))

    async def test_progress_is_kept_and_reaches_the_next_attempt(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        beat = TaskBeat(task_id=task.id, attempt=1, details=b"7", percent=70.0, message="half")
        assert codes(await self.beat(engine, worker, beat)) == ["running"]
        await world.advance(10)
        assert codes(await self.beat(engine, worker, TaskBeat(task_id=task.id, attempt=1))) == [
            "running"
        ]
        progress = (await world.task(task.id)).progress
        assert (progress.details, progress.percent, progress.message) == (b"7", 70.0, "half")
        assert progress.beat_at_ms == world.clock.now_ms()
        await world.finish(engine, worker, task, FinishKind.RELEASED)
        (again,) = await world.claim(engine, worker)
        assert again.progress.details == b"7"

    async def test_an_attempt_that_timed_out_is_expired(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(start_to_close_ms=1_000))
        await world.advance(1_000)
        await DueTasks().run_once(engine)
        beat = TaskBeat(task_id=task.id, attempt=1)
        assert codes(await self.beat(engine, worker, beat)) == ["task_expired"]
        await world.advance(5_000)
        await world.round(DueTasks(), engine)
        await world.claim(engine, worker)
        assert codes(await self.beat(engine, worker, beat)) == ["attempt_mismatch"]

    async def test_a_beat_in_one_batch_with_the_completion_behind_it_counts(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        beat = TaskBeat(task_id=task.id, attempt=1, details=b"last")
        await asyncio.gather(
            self.beat(engine, worker, beat), world.finish(engine, worker, task, FinishKind.FAILED)
        )
        assert (await world.task(task.id)).progress.details == b"last"


class TestFinish:
    async def test_a_success_ends_the_task_with_its_output(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.advance(7)
        answer = await world.finish(engine, worker, task, output=b"out")
        assert answer == Reported(TaskState.SUCCEEDED)
        stored = await world.task(task.id)
        assert (stored.state, stored.output) == (TaskState.SUCCEEDED, b"out")
        assert (stored.last_outcome, stored.worker_id) == (Outcome.SUCCEEDED, worker)
        assert stored.finished_at_ms == world.clock.now_ms()
        assert (await world.dump("tasks"))["tasks"] == []

    @pytest.mark.parametrize(
        ("named", "kept"), [("", "json"), ("json", "json"), ("bytes", "bytes")]
    )
    async def test_a_success_may_name_the_encoding_of_its_output(
        self, world: World, engine: Engine, named: str, kept: str
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(encoding="json"))
        await world.finish(engine, worker, task, output=b"\xff", output_encoding=named)
        stored = await world.task(task.id)
        assert (stored.output, stored.output_encoding) == (b"\xff", kept)
        assert stored.spec.encoding == "json"

    async def test_only_an_output_of_another_encoding_is_stored_with_its_own(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        same = await world.held(engine, worker, spec=spec(encoding="json"))
        other = await world.held(engine, worker, spec=spec(encoding="json"))
        await world.finish(engine, worker, same, output=b"1", output_encoding="json")
        await world.finish(engine, worker, other, output=b"1", output_encoding="bytes")
        assert (await world.task(same.id)).progress == NO_PROGRESS
        assert (await world.task(other.id)).progress == AttemptProgress(output_encoding="bytes")

    async def test_a_task_may_end_without_ever_being_confirmed(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        assert codes([await world.finish(engine, worker, task)]) == ["succeeded"]

    async def test_a_failure_backs_off_and_is_claimable_again(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        assert codes([await world.finish(engine, worker, task, FinishKind.FAILED)]) == ["pending"]
        stored = await world.task(task.id)
        assert (stored.line, stored.run_at_ms) == (Line.NONE, world.clock.now_ms() + 1_000)
        assert (stored.progress.failure_count, stored.progress.error) == (1, FAULT)
        assert await world.claim(engine, worker) == ()
        await world.advance(1_000)
        await world.round(DueTasks(), engine)
        (again,) = await world.claim(engine, worker)
        assert (again.attempt, again.progress.error) == (2, FAULT)
        await world.finish(engine, worker, again, FinishKind.FAILED)
        assert (await world.task(task.id)).run_at_ms == world.clock.now_ms() + 2_000

    async def test_an_error_may_say_when_to_try_again(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        error = ErrorInfo(ErrorCategory.USER_CODE, "slow down", next_delay_ms=90_000)
        await world.finish(engine, worker, task, FinishKind.FAILED, error=error)
        assert (await world.task(task.id)).run_at_ms == world.clock.now_ms() + 90_000

    @pytest.mark.parametrize(
        ("error", "policy", "reason"),
        [
            (FATAL, RetryPolicy(), Reason.NON_RETRYABLE),
            (FAULT, RetryPolicy(maximum_attempts=1), Reason.RETRIES_EXHAUSTED),
            (FAULT, RetryPolicy(non_retryable_error_types=("ValueError",)), Reason.NON_RETRYABLE),
        ],
    )
    async def test_a_failure_that_is_not_retried_fails_the_task_with_its_reason(
        self, world: World, engine: Engine, error: ErrorInfo, policy: RetryPolicy, reason: Reason
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(retry=policy))
        answer = await world.finish(engine, worker, task, FinishKind.FAILED, error=error)
        assert codes([answer]) == ["failed"]
        stored = await world.task(task.id)
        assert (stored.progress.reason, stored.progress.error) == (reason, error)

    async def test_a_released_task_is_pending_again_uncharged(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        answer = await world.finish(engine, worker, task, FinishKind.RELEASED)
        assert codes([answer]) == ["pending"]
        stored = await world.task(task.id)
        assert (stored.last_outcome, stored.line) == (Outcome.RELEASED, Line.RETURNED)
        assert (stored.progress.failure_count, stored.progress.interruption_count) == (0, 0)

    async def test_a_worker_may_report_a_cancellation(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        answer = await world.finish(engine, worker, task, FinishKind.CANCELLED)
        assert codes([answer]) == ["cancelled"]

    async def test_items_of_many_tasks_are_answered_in_their_order(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.add(engine, 6)
        tasks = await world.claim(engine, worker)
        kinds = list(FinishKind)[:3] * 2
        items = tuple(finish(task, kind) for task, kind in zip(tasks, kinds, strict=True))
        command = FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items)
        expected = ["succeeded", "pending", "cancelled"]
        assert codes(await engine.submit(command)) == expected * 2


class TestLateReports:
    async def test_a_wrong_worker_changes_nothing(self, world: World, engine: Engine) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        task = await world.running(engine, worker)
        before = await world.dump()
        answer = refusal(await world.finish(engine, other, task))
        assert (answer.code, answer.fields) == (
            "attempt_mismatch",
            {"expected_attempt": 1, "received_attempt": 1},
        )
        assert answer.message == f"Task {task.id}: attempt 1 is held by another worker."
        assert await world.dump() == before

    async def test_a_worker_that_deferred_its_attempt_is_told_who_completes_it(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, FinishKind.DEFERRED)
        answer = refusal(await world.finish(engine, worker, task))
        assert answer.code == "attempt_mismatch"
        assert "is completed from outside" in answer.message

    @pytest.mark.parametrize("attempt", [1, 3])
    async def test_another_attempt_than_the_live_one_changes_nothing(
        self, world: World, engine: Engine, attempt: int
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, FinishKind.RELEASED)
        (live,) = await world.claim(engine, worker)
        before = await world.dump()
        answer = refusal(await world.finish(engine, worker, live, attempt=attempt))
        assert (answer.code, answer.fields) == (
            "attempt_mismatch",
            {"expected_attempt": 2, "received_attempt": attempt},
        )
        assert await world.dump() == before

    async def test_an_attempt_that_ended_is_stale_although_the_number_is_the_same(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, FinishKind.RELEASED)
        answer = refusal(await world.finish(engine, worker, task))
        assert (answer.code, answer.fields["expected_attempt"]) == ("attempt_mismatch", 2)

    @pytest.mark.parametrize(
        ("kind", "fields"),
        [
            (FinishKind.SUCCEEDED, {"output": b"out"}),
            (FinishKind.SUCCEEDED, {}),
            (FinishKind.SUCCEEDED, {"output": b"out", "output_encoding": "bytes"}),
            (FinishKind.FAILED, {}),
            (FinishKind.FAILED, {"error": FATAL}),
            (FinishKind.CANCELLED, {}),
            (FinishKind.RELEASED, {}),
            (FinishKind.DEFERRED, {}),
        ],
    )
    async def test_a_repeated_completion_gets_its_first_answer(
        self, world: World, engine: Engine, kind: FinishKind, fields: dict[str, Any]
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        first = await world.finish(engine, worker, task, kind, **fields)
        before = await world.dump()
        await world.advance(10)
        assert await world.finish(engine, worker, task, kind, **fields) == first
        other = await world.start()
        assert await world.finish(other, worker, task, kind, **fields) == first
        after = await world.dump()
        assert {**after, "servers": []} == {**before, "servers": []}

    async def test_a_repeated_failure_gets_its_first_answer_after_later_attempts(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, FinishKind.FAILED)
        await world.advance(1_000)
        await world.round(DueTasks(), engine)
        (again,) = await world.claim(engine, worker)
        await world.finish(engine, worker, again)
        repeated = await world.finish(engine, worker, task, FinishKind.FAILED)
        assert repeated == Reported(TaskState.PENDING)
        assert await world.state(task.id) is TaskState.SUCCEEDED

    @pytest.mark.parametrize(
        ("kind", "fields"),
        [
            (FinishKind.SUCCEEDED, {"output": b"other"}),
            (FinishKind.SUCCEEDED, {"output": b"out", "output_encoding": "bytes"}),
            (FinishKind.FAILED, {}),
        ],
    )
    async def test_another_completion_after_the_end_is_refused(
        self, world: World, engine: Engine, kind: FinishKind, fields: dict[str, Any]
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, output=b"out")
        before = await world.dump()
        answer = refusal(await world.finish(engine, worker, task, kind, **fields))
        assert answer.code == "task_already_terminal"
        assert answer.fields == {"state": "SUCCEEDED", "reason": "completed"}
        assert await world.dump() == before

    async def test_an_encoding_is_the_same_whether_it_is_named_or_not(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(encoding="json"))
        first = await world.finish(engine, worker, task, output=b"1")
        named = await world.finish(engine, worker, task, output=b"1", output_encoding="json")
        assert named == first
        answer = await world.finish(engine, worker, task, output=b"1", output_encoding="bytes")
        assert refusal(answer).code == "task_already_terminal"

    async def test_of_two_completions_in_one_batch_the_first_counts(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        first, same, other = await asyncio.gather(
            world.finish(engine, worker, task, output=b"1"),
            world.finish(engine, worker, task, output=b"1"),
            world.finish(engine, worker, task, output=b"2"),
        )
        assert codes([first, same, other]) == ["succeeded", "succeeded", "task_already_terminal"]

    async def test_a_failure_that_is_sent_twice_in_one_batch_counts_once(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        items = (finish(task, FinishKind.FAILED),)
        command = FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items)
        first, second = await asyncio.gather(engine.submit(command), engine.submit(command))
        assert first == second == (Reported(TaskState.PENDING),)
        assert (await world.task(task.id)).progress.failure_count == 1

    async def test_a_report_on_a_task_that_never_was_is_not_found(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        item = Finish(task_id=world.clock.new_id(), attempt=1, kind=FinishKind.SUCCEEDED)
        command = FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(item,))
        assert codes(await engine.submit(command)) == ["not_found"]

    async def test_a_completion_from_an_offline_worker_counts_until_its_attempt_is_ended(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        tasks = [await world.running(engine, worker) for _ in range(2)]
        early = FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(finish(tasks[0]),))
        _, answers = await asyncio.gather(
            engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker)), engine.submit(early)
        )
        assert codes(answers) == ["succeeded"]
        await world.settle(engine)
        late = refusal(await world.finish(engine, worker, tasks[1]))
        assert (late.code, late.fields) == ("worker_inactive", {"reason": "evicted"})


class TestAsynchronousCompletion:
    async def test_a_deferred_task_waits_without_its_worker_until_it_is_completed_by_id(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        answer = await world.finish(engine, worker, task, FinishKind.DEFERRED)
        assert codes([answer]) == ["waiting"]
        assert (await world.task(task.id)).worker_id is None
        done = await complete_by_id(engine, task.id, output=b"later")
        assert done.state is TaskState.SUCCEEDED
        assert (await world.task(task.id)).output == b"later"
        assert await complete_by_id(engine, task.id, output=b"later") == done

    async def test_a_completion_by_id_may_overtake_the_deferral(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await complete_by_id(engine, task.id)
        answer = refusal(await world.finish(engine, worker, task, FinishKind.DEFERRED))
        assert answer.code == "task_already_terminal"

    async def test_a_token_needs_no_worker(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, FinishKind.DEFERRED)
        assert codes([await world.finish(engine, None, task)]) == ["succeeded"]

    async def test_a_named_attempt_must_be_the_live_one(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, FinishKind.RELEASED)
        (live,) = await world.claim(engine, worker)
        await world.confirm(engine, worker, live)
        with pytest.raises(Exception, match="attempt 1 is not the live one"):
            await complete_by_id(engine, task.id, attempt=1)
        assert (await complete_by_id(engine, task.id, attempt=2)).state is TaskState.SUCCEEDED

    async def test_an_unconfirmed_pending_or_finished_task_is_not_completed_by_id(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        with pytest.raises(WrongState):
            await complete_by_id(engine, task_id)
        (task,) = await world.claim(engine, worker)
        with pytest.raises(WrongState):
            await complete_by_id(engine, task_id)
        await world.finish(engine, worker, task)
        with pytest.raises(TaskAlreadyTerminal):
            await complete_by_id(engine, task_id, output=b"other")
        with pytest.raises(NotFound):
            await complete_by_id(engine, world.clock.new_id())

    async def test_a_failure_by_id_follows_the_retry_policy(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, FinishKind.DEFERRED)
        answer = await complete_by_id(engine, task.id, kind=FinishKind.FAILED, error=FAULT)
        assert answer.state is TaskState.PENDING


async def test_the_attempts_of_a_task_are_the_ended_ones_and_the_last(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    await world.finish(engine, worker, task, FinishKind.RELEASED)
    (task,) = await world.claim(engine, worker)
    await world.finish(engine, worker, task, FinishKind.FAILED)
    await world.advance(1_000)
    await world.round(DueTasks(), engine)
    (task,) = await world.claim(engine, worker)
    key = {"namespace": NAMESPACE, "task_id": task.id}
    live = await query.list_attempts(engine.store, **key)
    assert [each.outcome for each in live] == [Outcome.RELEASED, Outcome.FAILED, None]
    assert live[1].error == FAULT
    await world.finish(engine, worker, task)
    done = await query.list_attempts(engine.store, **key)
    assert [each.number for each in done] == [1, 2, 3]
    assert (done[2].outcome, done[2].ended_at_ms) == (Outcome.SUCCEEDED, world.clock.now_ms())
