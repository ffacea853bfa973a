"""Cancelling a task: who is asked, how long it may take, and that nothing is retried after."""

from __future__ import annotations

import pytest

from tenure.core.journal.entry import EntryKind
from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import Stop, StopCause, TellCancel, TellStop, WakeQueue
from tenure.core.task.event import (
    AttemptCancelled,
    AttemptDeferred,
    AttemptFailed,
    AttemptReleased,
    AttemptSucceeded,
    CancelRequested,
    CancelSignalled,
    Confirmed,
    DeliveryMissed,
    Heartbeaten,
    ResumeRequested,
    TaskEvent,
    TaskLost,
    WorkerLost,
)
from tenure.core.task.record import Line, Reason, Task, TaskState
from tests.core.task.tasks import (
    FAULT,
    NAMESPACE,
    T0,
    TASK_ID,
    WORKER,
    after,
    cancelled,
    cancelling,
    cancelling_told,
    confirmed,
    decided,
    due,
    failed_once,
    fresh,
    fresh_run,
    handed,
    pausing,
    refused,
    report,
    running,
    running_run,
    start,
    waiting_async,
    waiting_run,
    yielded,
)


def cleaning_up() -> Task:
    """Return a run that was handed out once more for its clean-up."""
    return handed(cancelled(waiting_run()))


@pytest.mark.parametrize(
    "task",
    [fresh(), fresh(run_at_ms=T0 + 9), failed_once(), pausing(fresh()), fresh_run()],
    ids=["ready", "later", "backing off", "paused", "run that never started"],
)
def test_what_nobody_holds_is_cancelled_at_once(task: Task) -> None:
    decision = decided(task, CancelRequested(reason="enough"), T0 + 9)
    assert (decision.task.state, decision.task.finished_at_ms) == (TaskState.CANCELLED, T0 + 9)
    assert (decision.task.line, decision.task.due_at_ms) == (Line.NONE, None)
    assert decision.task.progress.cancel_reason == "enough"
    assert decision.effects == ()


def test_a_dispatched_task_is_cancelled_at_once_and_its_worker_stopped() -> None:
    decision = decided(handed(fresh()), CancelRequested())
    assert decision.task.state is TaskState.CANCELLED
    assert decision.effects == (TellStop(WORKER, Stop(TASK_ID, 1, StopCause.CANCELLED)),)


def test_the_late_confirmation_of_a_cancelled_task_is_told_so() -> None:
    task = handed(fresh())
    rejection = refused(cancelled(task), report(Confirmed, task))
    assert rejection.code == "task_already_terminal"
    assert rejection.fields == {"state": "CANCELLED", "reason": "cancelled"}


def test_a_running_task_is_cancelling_and_its_worker_told() -> None:
    decision = decided(running(), CancelRequested())
    assert decision.task.state is TaskState.CANCELLING
    assert decision.effects == (TellCancel(WORKER, TASK_ID, 1),)


def test_what_is_completed_from_elsewhere_is_cancelling_and_its_grace_runs_at_once() -> None:
    task = after(waiting_async(), CancelRequested(), T0 + 9)
    assert (task.state, task.progress.grace_at_ms) == (TaskState.CANCELLING, T0 + 9)
    assert task.due_at_ms == T0 + 9 + 30_000


def test_a_waiting_run_is_handed_out_once_more_for_its_clean_up() -> None:
    decision = decided(waiting_run(), CancelRequested(), T0 + 9)
    task = decision.task
    assert (task.state, task.line) == (TaskState.PENDING, Line.RETURNED)
    assert [each.kind for each in decision.entries] == [EntryKind.CANCEL]
    assert decision.effects == (WakeQueue(NAMESPACE, "default"),)
    assert confirmed(handed(task)).state is TaskState.CANCELLING


def test_a_run_that_was_just_handed_out_again_learns_of_it_when_it_confirms() -> None:
    task = handed(after(yielded(running_run()), CancelRequested()))
    assert (task.state, task.attempt) == (TaskState.DISPATCHED, 2)
    assert confirmed(task, T0 + 9).progress.grace_at_ms == T0 + 9


def test_a_run_dispatched_again_is_not_cut_off_from_its_clean_up() -> None:
    woken = due(waiting_run(T0 + 5), T0 + 5).task
    task = cancelled(handed(woken))
    assert (task.state, task.is_cancel_requested) == (TaskState.DISPATCHED, True)


def test_a_paused_run_that_had_started_gets_its_clean_up() -> None:
    assert cancelled(pausing(waiting_run())).state is TaskState.PENDING


@pytest.mark.parametrize(
    "task",
    [
        cancelling(),
        cleaning_up(),
        cancelled(waiting_run()),
        yielded(cancelled(running_run())),
        pausing(cancelled(waiting_run())),
    ],
    ids=["cancelling", "dispatched", "pending", "waiting", "paused"],
)
def test_a_second_request_changes_nothing(task: Task) -> None:
    assert after(task, CancelRequested(reason="again"), T0 + 99) == task


def test_a_cancel_request_overrides_a_pause() -> None:
    task = cancelled(pausing(running_run()))
    assert not task.progress.pause_wanted
    assert yielded(task).state is TaskState.WAITING
    assert refused(task, ResumeRequested()).code == "wrong_state"


# The grace.


def test_the_grace_does_not_run_before_the_worker_was_told() -> None:
    task = cancelling()
    assert task.progress.grace_at_ms == 0
    assert task.due_at_ms == T0 + 60_000


def test_the_grace_runs_from_the_first_signal() -> None:
    task = cancelling()
    told = after(task, report(CancelSignalled, task), T0 + 10)
    assert told.due_at_ms == T0 + 10 + 30_000
    assert after(told, report(CancelSignalled, told), T0 + 20) == told


def test_the_answer_to_a_heartbeat_is_a_signal() -> None:
    task = cancelling()
    told = after(task, report(Heartbeaten, task), T0 + 10)
    assert told.progress.grace_at_ms == T0 + 10
    assert after(told, report(Heartbeaten, told), T0 + 20).progress.grace_at_ms == T0 + 10


def test_the_answer_to_a_repeated_confirmation_is_a_signal() -> None:
    task = cancelling()
    told = after(task, report(Confirmed, task), T0 + 10)
    assert told.due_at_ms == T0 + 10 + 30_000
    assert after(told, report(Confirmed, told), T0 + 20) == told


def test_a_heartbeat_that_confirms_a_clean_up_starts_its_grace() -> None:
    task = cleaning_up()
    beaten = after(task, report(Heartbeaten, task), T0 + 10)
    assert (beaten.state, beaten.progress.grace_at_ms) == (TaskState.CANCELLING, T0 + 10)


def test_what_is_deferred_while_cancelling_has_its_grace_from_there() -> None:
    task = cancelling()
    deferred = after(task, report(AttemptDeferred, task), T0 + 10)
    assert (deferred.state, deferred.worker_id) == (TaskState.CANCELLING, None)
    assert deferred.progress.grace_at_ms == T0 + 10


def test_what_is_deferred_after_the_signal_keeps_its_grace() -> None:
    task = cancelling_told()
    deferred = after(task, report(AttemptDeferred, task), T0 + 10)
    assert deferred.progress.grace_at_ms == T0


def test_a_worker_that_does_not_stop_within_the_grace_fails_the_task() -> None:
    task = cancelling_told(cancel_grace_ms=500)
    assert due(task, T0 + 499).task.state is TaskState.CANCELLING
    decision = due(task, T0 + 500)
    failed = decision.task
    assert (failed.state, failed.progress.reason) == (TaskState.FAILED, Reason.CANCEL_TIMEOUT)
    assert failed.last_outcome is Outcome.CANCEL_TIMEOUT
    assert decision.effects == (TellStop(WORKER, Stop(TASK_ID, 1, StopCause.CANCELLED)),)


def test_what_no_worker_holds_is_cancelled_when_the_grace_is_over() -> None:
    task = cancelled(waiting_async(cancel_grace_ms=500))
    ended = due(task, T0 + 500).task
    assert (ended.state, ended.progress.reason) == (TaskState.CANCELLED, None)


# Nothing is retried.


def test_success_wins_over_a_cancel_request() -> None:
    task = cancelling_told()
    done = after(task, report(AttemptSucceeded, task, output=b"done"))
    assert (done.state, done.output) == (TaskState.SUCCEEDED, b"done")


def test_success_of_a_clean_up_wins_too() -> None:
    task = cleaning_up()
    assert after(task, report(AttemptSucceeded, task)).state is TaskState.SUCCEEDED


def test_nothing_is_retried_after_a_cancel_request() -> None:
    task = cancelling()
    events: list[TaskEvent] = [
        report(AttemptCancelled, task),
        report(AttemptFailed, task, error=FAULT),
        report(TaskLost, task),
        WorkerLost(worker_id=WORKER),
        report(AttemptReleased, task),
    ]
    for event in events:
        assert after(task, event).state is TaskState.CANCELLED


@pytest.mark.parametrize(
    "limit", ["start_to_close_ms", "heartbeat_timeout_ms", "schedule_to_close_ms"]
)
def test_a_timeout_after_a_cancel_request_cancels(limit: str) -> None:
    task = cancelling(**{limit: 500})
    ended = due(task, T0 + 500).task
    assert (ended.state, ended.last_outcome) == (TaskState.CANCELLED, Outcome.TIMED_OUT)


def test_the_error_of_a_failed_clean_up_is_kept() -> None:
    task = cancelling()
    ended = after(task, report(AttemptFailed, task, error=FAULT))
    assert (ended.progress.reason, ended.progress.error) == (None, FAULT)


def test_a_clean_up_that_was_not_delivered_is_handed_out_again() -> None:
    task = cleaning_up()
    again = after(task, report(DeliveryMissed, task))
    assert (again.state, again.is_cancel_requested) == (TaskState.PENDING, True)


def test_a_clean_up_that_is_never_delivered_backs_off() -> None:
    task = cancelled(waiting_run())
    for _ in range(3):
        held = handed(start(task))
        task = after(held, report(DeliveryMissed, held))
    assert (task.line, task.run_at_ms) == (Line.NONE, T0 + 1_000)


def test_a_clean_up_may_wait_for_its_steps() -> None:
    task = confirmed(cleaning_up())
    waiting = yielded(task, seen=1, journal_end=1)
    assert (waiting.state, waiting.progress.grace_at_ms) == (TaskState.WAITING, 0)


def test_a_clean_up_that_has_not_seen_the_request_runs_again() -> None:
    task = cancelled(running_run())
    assert yielded(task, seen=0, journal_end=1).state is TaskState.PENDING


def test_a_report_whose_answer_reaches_nobody_is_no_signal() -> None:
    task = cancelling()
    told = after(task, report(Heartbeaten, task, is_answered=False), T0 + 10)
    assert told.progress.grace_at_ms == 0
    assert after(task, report(Confirmed, task, is_answered=False), T0 + 10) == task
