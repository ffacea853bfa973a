"""Runs that wait: yield, timers, signals, cancel, parking, and beginning anew."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.journal.entry import EntryKind
from tenure.core.run.record import Wait
from tenure.core.run.wake_up import run_of
from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Reason, Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.engine.engine import Engine
from tenure.engine.read import run as run_read
from tenure.engine.run.command import ResumeRun, StartRun, TerminateRun
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import CancelTask, FinishKind, RetryTask
from tenure.errors import (
    AlreadyExists,
    IdempotencyConflict,
    NotFound,
    RateLimited,
    Rejection,
    TaskAlreadyTerminal,
    WrongState,
)
from tests.engine.run.runs import (
    AGAIN_SPEC,
    RUN_SPEC,
    cancel,
    give_up_slot,
    held_run,
    journal,
    kinds,
    positions,
    report,
    running_run,
    signal,
    start,
    step,
    terminate,
)
from tests.engine.world import FAULT, NAMESPACE, OTHER_NAMESPACE, World, codes

MISMATCH = ErrorInfo(ErrorCategory.CONFIGURATION, "changed", type="journal_mismatch")


async def waiting_run(world: World, engine: Engine, worker: str, **wish: object) -> Task:
    """Return a run that has given up its slot."""
    run = await running_run(world, engine, worker)
    answer = await give_up_slot(world, engine, worker, run, **wish)
    assert codes([answer]) == ["waiting"]
    return run


def seen(task: Task) -> list[str]:
    """Return the keys of the page that a run was handed out with."""
    assert task.link is not None
    assert task.link.page is not None
    return [each.key for each in task.link.page.entries]


class TestStart:
    async def test_a_resend_returns_the_run_that_it_has_started(
        self, world: World, engine: Engine
    ) -> None:
        new = world.new(spec=RUN_SPEC)
        first = await engine.submit(StartRun(namespace=NAMESPACE, new=new))
        await world.advance(5_000)
        again = StartRun(namespace=NAMESPACE, new=new, is_resend=True)
        answer = await engine.submit(again)
        assert (answer.task_id, first.is_new, answer.is_new) == (new.id, True, False)
        with pytest.raises(AlreadyExists):
            await engine.submit(StartRun(namespace=NAMESPACE, new=new))

    async def test_an_idempotency_key_starts_one_run(self, world: World, engine: Engine) -> None:
        first = await start(world, engine, idempotency_key="k")
        assert await start(world, engine, idempotency_key="k") == first
        with pytest.raises(IdempotencyConflict):
            await start(world, engine, idempotency_key="k", input=b"other")

    async def test_an_unknown_namespace_starts_nothing(self, world: World, engine: Engine) -> None:
        with pytest.raises(NotFound):
            await engine.submit(StartRun(namespace="no/where", new=world.new(spec=RUN_SPEC)))

    async def test_a_run_ends_with_what_its_body_returned(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run))
        await world.finish(engine, worker, run, output=b"done")
        view = await run_read.get_run(engine.store, namespace=NAMESPACE, run_id=run.id)
        assert (view.task.state, view.task.output) == (TaskState.SUCCEEDED, b"done")
        assert view.entry_count == 1
        assert view.journal_bytes > 0
        assert await kinds(engine, run.id) == [EntryKind.STEP]


class TestYield:
    async def test_a_run_that_has_seen_everything_waits_and_holds_nobody(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        await positions(engine, worker, report(run, step("a")))
        waits = (Wait("signal", "approve", 5, "orders.py:7"),)
        answer = await give_up_slot(world, engine, worker, run, seen=1, waits=waits, wait_count=1)
        assert codes([answer]) == ["waiting"]
        stored = await world.task(run.id)
        assert (stored.worker_id, run_of(stored).waits) == (None, waits)
        assert await world.dump("attempts") == {"attempts": []}
        # It still has the journal up to there, and gets only what is new.
        await signal(engine, run.id)
        (again,) = await world.claim(engine, worker)
        assert (again.attempt, seen(again)) == (2, ["approve"])

    async def test_another_worker_gets_the_whole_journal(
        self, world: World, engine: Engine
    ) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        run = await running_run(world, engine, worker)
        await positions(engine, worker, report(run, step("a")))
        await give_up_slot(world, engine, worker, run, seen=1)
        await signal(engine, run.id)
        (again,) = await world.claim(engine, other)
        assert seen(again) == ["a", "approve"]

    async def test_a_run_that_missed_an_entry_is_pending_at_once(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        await signal(engine, run.id)
        answer = await give_up_slot(world, engine, worker, run, seen=0)
        assert codes([answer]) == ["pending"]

    @pytest.mark.parametrize("is_remembered", [True, False])
    async def test_a_signal_by_another_server_is_never_missed(
        self, world: World, engine: Engine, *, is_remembered: bool
    ) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        if is_remembered:
            await positions(engine, worker, report(run))
        other = await world.start()
        await signal(other, run.id)
        answer = await give_up_slot(world, engine, worker, run, seen=int(is_remembered))
        assert codes([answer]) == ["pending"]

    async def test_a_yield_that_comes_again_gets_its_first_answer(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await waiting_run(world, engine, worker)
        assert codes([await give_up_slot(world, engine, worker, run)]) == ["waiting"]
        await signal(engine, run.id)
        (again,) = await world.claim(engine, worker)
        late = await give_up_slot(world, engine, worker, run)
        assert codes([late]) == ["attempt_mismatch"]
        assert again.attempt == 2

    async def test_only_the_holder_yields(self, world: World, engine: Engine) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        run = await running_run(world, engine, worker)
        assert codes([await give_up_slot(world, engine, other, run)]) == ["attempt_mismatch"]
        activity = await world.held(engine, worker)
        assert codes([await give_up_slot(world, engine, worker, activity)]) == ["wrong_state"]


class TestTimer:
    async def test_a_sleeping_run_is_woken_with_its_timer(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        wake_at_ms = world.clock.now_ms() + 60_000
        run = await waiting_run(
            world, engine, worker, wake_at_ms=wake_at_ms, wake_key="2/sleep", wake_index=3
        )
        await world.advance(59_999)
        await world.round(DueTasks(), engine)
        assert await world.state(run.id) is TaskState.WAITING
        await world.advance(1)
        await world.round(DueTasks(), engine)
        await world.round(DueTasks(), engine)
        (entry,) = await journal(engine, run.id)
        assert (entry.kind, entry.key, entry.attempt) == (EntryKind.TIMER, "2/sleep", 0)
        assert (entry.content.fire_at_ms, entry.content.index) == (wake_at_ms, 3)
        await world.beat(engine, worker, 1)
        (again,) = await world.claim(engine, worker)
        assert seen(again) == ["2/sleep"]

    async def test_many_sleeping_runs_are_woken_by_one_update_and_one_insert(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        wake_at_ms = world.clock.now_ms() + 1_000
        runs = [
            await waiting_run(world, engine, worker, wake_at_ms=wake_at_ms, wake_key="sleep")
            for _ in range(5)
        ]
        await world.advance(1_000)
        world.faults.points.clear()
        await DueTasks().run_once(engine)
        assert world.faults.points.count("append_entries") == 1
        assert world.faults.points.count("update_tasks") == 1
        for run in runs:
            assert await kinds(engine, run.id) == [EntryKind.TIMER]


class TestSignal:
    async def test_signals_come_once_and_in_order_at_every_moment(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run_id = await start(world, engine)
        await signal(engine, run_id, "before")
        (run,) = await world.claim(engine, worker)
        await signal(engine, run_id, "dispatched")
        await world.confirm(engine, worker, run)
        await signal(engine, run_id, "running")
        await world.finish(engine, worker, run, FinishKind.RELEASED)
        await signal(engine, run_id, "between")
        (again,) = await world.claim(engine, worker)
        assert seen(again) == ["before", "dispatched", "running", "between"]

    async def test_a_signal_with_an_id_is_recorded_once(self, world: World, engine: Engine) -> None:
        run_id = await start(world, engine)
        assert (await signal(engine, run_id, payload=b"1", signal_id="s1")).is_new
        assert not (await signal(engine, run_id, payload=b"1", signal_id="s1")).is_new
        with pytest.raises(IdempotencyConflict):
            await signal(engine, run_id, payload=b"2", signal_id="s1")
        other_id = await start(world, engine)
        assert (await signal(engine, other_id, payload=b"2", signal_id="s1")).is_new
        assert len(await journal(engine, run_id)) == 1

    async def test_a_repeated_signal_to_a_finished_run_is_still_known(
        self, world: World, engine: Engine
    ) -> None:
        run_id = await start(world, engine)
        await signal(engine, run_id, signal_id="s1")
        await cancel(engine, run_id)
        assert not (await signal(engine, run_id, signal_id="s1")).is_new
        with pytest.raises(TaskAlreadyTerminal) as refusal:
            await signal(engine, run_id, signal_id="s2")
        assert refusal.value.fields["state"] == "CANCELLED"

    async def test_a_signal_to_what_is_no_run_is_not_found(
        self, world: World, engine: Engine
    ) -> None:
        (task_id,) = await world.add(engine)
        for run_id in (task_id, world.clock.new_id()):
            with pytest.raises(NotFound):
                await signal(engine, run_id)

    async def test_a_flood_of_signals_is_refused(
        self, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenure.core.journal.room.JOURNAL_ENTRIES_MAX", 1)
        run_id = await start(world, engine)
        await signal(engine, run_id)
        await signal(engine, run_id)
        with pytest.raises(RateLimited):
            await signal(engine, run_id)
        assert len(await journal(engine, run_id)) == 2

    async def test_signals_from_two_servers_at_once_have_no_gap(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        run_id = await start(world, engine)
        sent = [signal(each, run_id) for each in (engine, other) * 10]
        await asyncio.gather(*sent)
        assert await kinds(engine, run_id) == [EntryKind.SIGNAL] * 20


class TestCancel:
    async def test_a_waiting_run_is_handed_out_for_its_clean_up(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await waiting_run(world, engine, worker)
        assert (await cancel(engine, run.id, "enough")).state is TaskState.PENDING
        assert (await cancel(engine, run.id)).state is TaskState.PENDING
        (entry,) = await journal(engine, run.id)
        assert entry.content.error == ErrorInfo(ErrorCategory.CANCELLED, "enough")
        (again,) = await world.claim(engine, worker)
        (answer,) = await world.confirm(engine, worker, again)
        assert (answer.state, answer.should_cancel) == (TaskState.CANCELLING, True)
        assert seen(again) == ["cancel"]
        done = await world.finish(engine, worker, again, FinishKind.CANCELLED)
        assert codes([done]) == ["cancelled"]

    async def test_a_clean_up_goes_on_after_its_worker_is_gone(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        await cancel(engine, run.id)
        await positions(engine, worker, report(run, step("undo")))
        released = await world.finish(engine, worker, run, FinishKind.RELEASED)
        assert codes([released]) == ["pending"]
        (again,) = await world.claim(engine, worker)
        assert seen(again) == ["cancel", "undo"]

    async def test_a_cancel_of_its_task_is_an_entry_too(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=run.id))
        assert await kinds(engine, run.id) == [EntryKind.CANCEL]

    async def test_a_cancel_behind_entries_of_another_server_has_the_next_position(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        await positions(engine, worker, report(run))
        other = await world.start()
        await signal(other, run.id)
        await cancel(engine, run.id)
        expected = [EntryKind.STEP, EntryKind.SIGNAL, EntryKind.CANCEL]
        assert await kinds(engine, run.id) == expected

    async def test_a_run_that_nobody_had_is_cancelled_at_once(
        self, world: World, engine: Engine
    ) -> None:
        run_id = await start(world, engine)
        assert (await cancel(engine, run_id)).state is TaskState.CANCELLED
        with pytest.raises(TaskAlreadyTerminal):
            await cancel(engine, run_id)

    async def test_a_terminated_run_has_failed_and_its_worker_is_told(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        sink, _ = await world.session(engine, worker)
        run_id = await start(world, engine)
        await world.settle(engine)
        await engine.submit(TerminateRun(namespace=NAMESPACE, run_id=run_id))
        await world.settle(engine)
        ended = await world.task(run_id)
        assert (ended.state, ended.progress.reason) == (TaskState.FAILED, Reason.TERMINATED)
        assert [each.task_id for each in sink.stopped] == [run_id]

    async def test_an_activity_and_a_foreign_run_are_no_runs_here(
        self, world: World, engine: Engine
    ) -> None:
        (task_id,) = await world.add(engine)
        run_id = await start(world, engine)
        for command in (
            TerminateRun(namespace=NAMESPACE, run_id=task_id),
            TerminateRun(namespace=OTHER_NAMESPACE, run_id=run_id),
        ):
            with pytest.raises(NotFound):
                await engine.submit(command)
        with pytest.raises(NotFound):
            await run_read.get_run(engine.store, namespace=NAMESPACE, run_id=task_id)
        with pytest.raises(NotFound):
            await run_read.read_journal(engine.store, namespace=OTHER_NAMESPACE, run_id=run_id)


class TestPark:
    async def park(self, world: World, engine: Engine, worker: str) -> Task:
        run = await running_run(world, engine, worker)
        answer = await world.finish(engine, worker, run, FinishKind.PARKED, error=MISMATCH)
        assert codes([answer]) == ["waiting"]
        return run

    async def test_a_parked_run_is_tried_again_by_itself(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await self.park(world, engine, worker)
        again = await world.finish(engine, worker, run, FinishKind.PARKED, error=MISMATCH)
        assert codes([again]) == ["waiting"]
        stored = await world.task(run.id)
        assert (run_of(stored).park, stored.last_outcome) == (MISMATCH, Outcome.PARKED)
        await signal(engine, run.id)
        assert await world.state(run.id) is TaskState.WAITING
        await world.advance(60_000)
        await world.round(DueTasks(), engine)
        assert await world.state(run.id) is TaskState.PENDING
        assert await kinds(engine, run.id) == [EntryKind.SIGNAL]

    async def test_a_parked_run_is_tried_at_once_when_it_is_resumed(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await self.park(world, engine, worker)
        answer = await engine.submit(ResumeRun(namespace=NAMESPACE, run_id=run.id))
        assert answer.state is TaskState.PENDING
        with pytest.raises(WrongState):
            await engine.submit(ResumeRun(namespace=NAMESPACE, run_id=run.id))


class TestFailure:
    async def test_a_run_with_a_policy_begins_anew_with_an_empty_journal(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker, spec=AGAIN_SPEC)
        await positions(engine, worker, report(run))
        answer = await world.finish(engine, worker, run, FinishKind.FAILED)
        assert codes([answer]) == ["pending"]
        assert await journal(engine, run.id) == ()
        await world.advance(2_000)
        await world.round(DueTasks(), engine)
        await world.beat(engine, worker, 1)
        (again,) = await world.claim(engine, worker)
        assert (run_of(again).generation, seen(again)) == (1, [])
        assert await positions(engine, worker, report(again)) == [1]
        failed = await world.finish(engine, worker, again, FinishKind.FAILED)
        assert codes([failed]) == ["failed"]

    async def test_without_a_policy_a_failure_is_the_end(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        answer = await world.finish(engine, worker, run, FinishKind.FAILED)
        assert codes([answer]) == ["failed"]
        assert (await world.task(run.id)).progress.error == FAULT

    async def test_a_body_that_cancels_itself_has_failed_however_often_it_says_so(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        answer = await world.finish(engine, worker, run, FinishKind.CANCELLED)
        again = await world.finish(engine, worker, run, FinishKind.CANCELLED)
        assert codes([answer, again]) == ["failed", "failed"]

    async def test_what_comes_in_the_batch_that_begins_a_run_anew_is_in_its_new_journal(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker, spec=AGAIN_SPEC)
        await positions(engine, worker, report(run))
        await asyncio.gather(
            signal(engine, run.id, "before"),
            world.finish(engine, worker, run, FinishKind.FAILED),
            signal(engine, run.id, "after"),
            cancel(engine, run.id),
        )
        assert [each.key for each in await journal(engine, run.id)] == ["after", "cancel"]

    async def test_a_run_that_ends_in_the_batch_in_which_it_begins_anew_has_its_new_journal(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker, spec=AGAIN_SPEC)
        await positions(engine, worker, report(run))
        await asyncio.gather(
            world.finish(engine, worker, run, FinishKind.FAILED),
            signal(engine, run.id, "after"),
            terminate(engine, run.id),
        )
        assert (await world.task(run.id)).progress.reason is Reason.TERMINATED
        assert [each.key for each in await journal(engine, run.id)] == ["after"]

    async def test_a_retried_run_begins_with_a_journal_of_its_own(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run))
        await world.finish(engine, worker, run, FinishKind.FAILED)
        new_id = world.clock.new_id()
        command = RetryTask(namespace=NAMESPACE, task_id=run.id, new_task_id=new_id)
        told = engine.submit(command)
        await asyncio.gather(told, signal(engine, new_id))
        (again,) = await world.claim(engine, worker)
        assert (again.id, again.spec.retry_of, seen(again)) == (new_id, run.id, ["approve"])
        assert await positions(engine, worker, report(again)) == [2]

    async def test_a_late_end_of_a_terminated_run_changes_nothing(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await engine.submit(TerminateRun(namespace=NAMESPACE, run_id=run.id))
        late = await world.finish(engine, worker, run, output=b"late")
        assert isinstance(late, Rejection)
        assert late.code == "task_already_terminal"
        assert (await world.task(run.id)).output is None
