"""The four timeouts and the other timers: exact instants, second looks, and sight."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import Stop, StopCause, TellStop, WakeQueue
from tenure.core.task.event import (
    AttemptFailed,
    AttemptReleased,
    AttemptSucceeded,
    CancelRequested,
    Due,
    Heartbeaten,
)
from tenure.core.task.record import Line, Reason, Task, TaskState
from tenure.core.task.retry import ErrorCategory, RetryPolicy
from tests.core.task.tasks import (
    FAULT,
    NAMESPACE,
    T0,
    TASK_ID,
    WORKER,
    after,
    cancelled,
    cancelling_told,
    confirmed,
    due,
    failed_once,
    fresh,
    handed,
    lost,
    pausing,
    refused,
    report,
    running,
    start,
    succeeded,
    waiting_async,
    waiting_run,
)


def check_expires(task: Task, at_ms: int, reason: Reason) -> None:
    """Check that the task lives one millisecond before the instant and fails at it."""
    assert task.due_at_ms is not None
    assert task.due_at_ms <= at_ms
    assert due(task, at_ms - 1).task.state is not TaskState.FAILED
    failed = due(task, at_ms).task
    assert (failed.state, failed.progress.reason) == (TaskState.FAILED, reason)
    assert failed.progress.error is not None
    assert failed.progress.error.category is ErrorCategory.TIMEOUT


# Start.


def test_a_task_starts_at_its_run_at() -> None:
    task = fresh(run_at_ms=T0 + 500)
    assert (task.line, task.due_at_ms) == (Line.NONE, T0 + 500)
    assert due(task, T0 + 499).task == task
    ready = due(task, T0 + 500).task
    assert (ready.line, ready.run_at_ms, ready.due_at_ms) == (Line.RETURNED, T0 + 500, None)


def test_a_late_start_keeps_the_place_in_the_line() -> None:
    assert due(fresh(run_at_ms=T0 + 500), T0 + 9_000).task.run_at_ms == T0 + 500


# Schedule to start.


def test_schedule_to_start_runs_from_run_at() -> None:
    check_expires(fresh(schedule_to_start_ms=100), T0 + 100, Reason.SCHEDULE_TO_START)
    later = fresh(schedule_to_start_ms=100, run_at_ms=T0 + 500)
    check_expires(due(later, T0 + 500).task, T0 + 600, Reason.SCHEDULE_TO_START)


def test_a_late_start_does_not_lengthen_schedule_to_start() -> None:
    task = due(fresh(schedule_to_start_ms=100, run_at_ms=T0 + 500), T0 + 590).task
    check_expires(task, T0 + 600, Reason.SCHEDULE_TO_START)


def test_schedule_to_start_runs_anew_when_a_task_returns() -> None:
    held = handed(fresh(schedule_to_start_ms=100), T0 + 50)
    back = after(held, report(AttemptReleased, held), T0 + 400)
    check_expires(back, T0 + 500, Reason.SCHEDULE_TO_START)


def test_schedule_to_start_of_a_retry_runs_from_the_end_of_its_back_off() -> None:
    check_expires(
        start(failed_once(schedule_to_start_ms=100)), T0 + 1_100, Reason.SCHEDULE_TO_START
    )


def test_schedule_to_start_ends_with_the_hand_out() -> None:
    task = handed(fresh(schedule_to_start_ms=100), T0 + 99)
    assert due(task, T0 + 5_000).task == task


def test_schedule_to_start_is_not_retried_and_costs_nothing() -> None:
    failed = due(fresh(schedule_to_start_ms=100), T0 + 100).task
    assert (failed.progress.failure_count, failed.last_outcome) == (0, None)


# Start to close.


def test_start_to_close_runs_from_the_hand_out() -> None:
    task = confirmed(handed(fresh(start_to_close_ms=500), T0 + 10), T0 + 200)
    assert task.due_at_ms == T0 + 510
    assert due(task, T0 + 509).task == task
    back = due(task, T0 + 510).task
    assert (back.state, back.last_outcome) == (TaskState.PENDING, Outcome.TIMED_OUT)
    assert back.run_at_ms == T0 + 510 + 1_000


def test_start_to_close_counts_for_an_unconfirmed_attempt_too() -> None:
    task = handed(fresh(start_to_close_ms=500))
    assert task.due_at_ms == T0 + 500
    assert due(task, T0 + 500).task.last_outcome is Outcome.TIMED_OUT


def test_start_to_close_is_per_attempt() -> None:
    task = handed(lost(fresh(start_to_close_ms=500)), T0 + 5_000)
    assert task.due_at_ms == T0 + 5_500


def test_start_to_close_of_the_last_attempt_fails_the_task() -> None:
    task = running(start_to_close_ms=500, retry=RetryPolicy(maximum_attempts=1))
    check_expires(task, T0 + 500, Reason.START_TO_CLOSE)
    assert due(task, T0 + 500).effects == (TellStop(WORKER, Stop(TASK_ID, 1, StopCause.TIMED_OUT)),)


@pytest.mark.parametrize(
    "task",
    [
        handed(fresh(start_to_close_ms=500)),
        running(start_to_close_ms=500),
        running(heartbeat_timeout_ms=500),
    ],
    ids=["dispatched", "running", "silent"],
)
def test_the_worker_of_an_attempt_that_timed_out_is_stopped_though_it_is_retried(
    task: Task,
) -> None:
    decision = due(task, T0 + 500)
    assert decision.task.state is TaskState.PENDING
    assert decision.effects == (TellStop(WORKER, Stop(TASK_ID, 1, StopCause.TIMED_OUT)),)


def test_nobody_is_stopped_when_what_no_worker_holds_times_out() -> None:
    decision = due(waiting_async(start_to_close_ms=500), T0 + 500)
    assert decision.task.last_outcome is Outcome.TIMED_OUT
    assert decision.effects == ()


def test_a_timeout_that_is_retried_at_once_wakes_its_queue_too() -> None:
    task = running(start_to_close_ms=500, retry=RetryPolicy(initial_interval_ms=0))
    decision = due(task, T0 + 500)
    assert decision.effects == (
        WakeQueue(NAMESPACE, "default"),
        TellStop(WORKER, Stop(TASK_ID, 1, StopCause.TIMED_OUT)),
    )


def test_start_to_close_runs_on_while_an_activity_completes_later() -> None:
    task = waiting_async(start_to_close_ms=500, retry=RetryPolicy(maximum_attempts=1))
    check_expires(task, T0 + 500, Reason.START_TO_CLOSE)


def test_the_jitter_of_the_timer_moves_the_retry() -> None:
    task = running(start_to_close_ms=500)
    back = after(task, Due(sighted_ms=0, jitter=0.0), T0 + 500)
    assert back.run_at_ms == T0 + 500 + 800


# Schedule to close.


@pytest.mark.parametrize(
    "task",
    [
        fresh(schedule_to_close_ms=500),
        handed(fresh(schedule_to_close_ms=500)),
        running(schedule_to_close_ms=500),
        waiting_async(schedule_to_close_ms=500),
        waiting_run(schedule_to_close_ms=500),
        pausing(fresh(schedule_to_close_ms=500)),
    ],
    ids=["pending", "dispatched", "running", "completed from elsewhere", "waiting", "paused"],
)
def test_schedule_to_close_goes_on_in_every_state(task: Task) -> None:
    assert task.due_at_ms == T0 + 500
    check_expires(task, T0 + 500, Reason.SCHEDULE_TO_CLOSE)


def test_schedule_to_close_runs_from_run_at_over_all_attempts() -> None:
    task = fresh(schedule_to_close_ms=500, run_at_ms=T0 + 100)
    again = handed(lost(task), T0 + 300)
    check_expires(again, T0 + 600, Reason.SCHEDULE_TO_CLOSE)


def test_schedule_to_close_is_never_retried() -> None:
    failed = due(running(schedule_to_close_ms=500), T0 + 500).task
    assert (failed.progress.failure_count, failed.last_outcome) == (0, Outcome.TIMED_OUT)


def test_the_end_of_everything_comes_before_what_ended_earlier() -> None:
    task = running(schedule_to_close_ms=500, start_to_close_ms=400)
    assert due(task, T0 + 600).task.progress.reason is Reason.SCHEDULE_TO_CLOSE


@pytest.mark.parametrize(("close_ms", "is_retried"), [(1_000, False), (1_001, True)])
def test_a_retry_that_would_start_after_schedule_to_close_is_not_scheduled(
    close_ms: int, is_retried: bool
) -> None:
    task = running(schedule_to_close_ms=close_ms)
    ended = after(task, report(AttemptFailed, task, error=FAULT))
    assert (ended.state is TaskState.PENDING) is is_retried
    assert ended.progress.reason is (None if is_retried else Reason.SCHEDULE_TO_CLOSE)
    assert ended.progress.error == FAULT


# Heartbeats.


def test_the_heartbeat_timeout_runs_from_the_confirmation() -> None:
    held = handed(fresh(heartbeat_timeout_ms=1_000, retry=RetryPolicy(maximum_attempts=1)))
    assert held.due_at_ms == T0 + 20_000
    task = confirmed(held, T0 + 700)
    check_expires(task, T0 + 1_700, Reason.HEARTBEAT_TIMEOUT)


def test_a_heartbeat_starts_the_timeout_anew_and_an_early_timer_arms_itself_again() -> None:
    task = running(heartbeat_timeout_ms=1_000)
    beaten = after(task, report(Heartbeaten, task), T0 + 900)
    early = due(beaten, T0 + 1_000).task
    assert early == replace(beaten, due_at_ms=T0 + 1_900)
    assert due(early, T0 + 1_899).task == early
    assert due(early, T0 + 1_900).task.last_outcome is Outcome.TIMED_OUT


def test_a_missed_heartbeat_is_retried() -> None:
    back = due(running(heartbeat_timeout_ms=1_000), T0 + 1_000).task
    assert (back.state, back.progress.failure_count) == (TaskState.PENDING, 1)


def test_an_activity_that_completes_later_must_heartbeat_too() -> None:
    task = waiting_async(heartbeat_timeout_ms=1_000)
    assert due(task, T0 + 1_000).task.last_outcome is Outcome.TIMED_OUT


# Delivery.


def test_a_task_that_nobody_confirms_is_pending_again() -> None:
    task = handed(fresh(delivery_timeout_ms=700))
    assert due(task, T0 + 699).task == task
    back = due(task, T0 + 700).task
    assert (back.state, back.last_outcome) == (TaskState.PENDING, Outcome.UNDELIVERED)
    assert (back.line, back.progress.failure_count) == (Line.RETURNED, 0)


# A timer is never authoritative.


@pytest.mark.parametrize(
    "task",
    [fresh(), running(), waiting_async(), waiting_run(), pausing(fresh()), cancelling_told()],
    ids=["pending", "running", "completed from elsewhere", "waiting", "paused", "cancelling"],
)
def test_a_timer_that_finds_nothing_due_changes_nothing(task: Task) -> None:
    assert due(task, T0 + 1).task == task


def test_a_late_timer_finds_that_the_row_has_moved_on() -> None:
    held = handed(fresh(delivery_timeout_ms=700))
    moved_on = confirmed(held, T0 + 600)
    assert due(moved_on, T0 + 700).task == moved_on
    assert refused(succeeded(), Due(sighted_ms=10**9)).code == "wrong_state"


def test_a_timer_of_an_earlier_attempt_does_not_touch_the_next() -> None:
    again = handed(lost(fresh(start_to_close_ms=500)), T0 + 400)
    assert due(again, T0 + 500).task == again


# Sight.


@pytest.mark.parametrize(
    ("task", "period_ms"),
    [
        (handed(fresh(delivery_timeout_ms=700)), 700),
        (running(heartbeat_timeout_ms=700), 700),
        (waiting_async(heartbeat_timeout_ms=700), 700),
        (cancelling_told(cancel_grace_ms=700), 700),
        (cancelled(waiting_async(cancel_grace_ms=700)), 700),
    ],
    ids=["delivery", "heartbeat", "heartbeat from elsewhere", "grace", "grace of nobody"],
)
def test_what_depends_on_hearing_is_judged_after_one_full_period_of_sight(
    task: Task, period_ms: int
) -> None:
    at_ms = T0 + 900
    for sighted_ms in (0, 1, period_ms - 1):
        blind = due(task, at_ms, sighted_ms=sighted_ms).task
        judged_at_ms = at_ms + period_ms - sighted_ms
        assert blind == replace(task, due_at_ms=judged_at_ms)
        judged = due(blind, judged_at_ms, sighted_ms=period_ms).task
        assert judged.last_outcome is not None
    assert due(task, at_ms, sighted_ms=period_ms).task.last_outcome is not None


def test_a_deadline_in_the_future_is_not_moved_by_blindness_that_ends_before() -> None:
    task = running(heartbeat_timeout_ms=700)
    assert due(task, T0 + 10, sighted_ms=650).task.due_at_ms == T0 + 700


@pytest.mark.parametrize(
    ("task", "at_ms"),
    [
        (fresh(run_at_ms=T0 + 500), T0 + 500),
        (fresh(schedule_to_start_ms=500), T0 + 500),
        (running(start_to_close_ms=500), T0 + 500),
        (running(schedule_to_close_ms=500), T0 + 500),
        (waiting_run(T0 + 500), T0 + 500),
    ],
    ids=["start", "schedule to start", "start to close", "schedule to close", "wake"],
)
def test_what_depends_on_no_worker_is_judged_by_a_blind_server(task: Task, at_ms: int) -> None:
    blind = due(task, at_ms, sighted_ms=0)
    assert blind == due(task, at_ms)
    assert blind.task.due_at_ms != at_ms


def test_a_blind_server_still_sees_the_end_of_the_attempt() -> None:
    task = running(heartbeat_timeout_ms=700, start_to_close_ms=2_000)
    blind = due(task, T0 + 1_900, sighted_ms=0).task
    assert blind.due_at_ms == T0 + 2_000
    assert due(blind, T0 + 2_000, sighted_ms=100).task.last_outcome is Outcome.TIMED_OUT


def test_a_report_that_came_while_the_server_was_blind_counts() -> None:
    task = running(heartbeat_timeout_ms=700)
    blind = due(task, T0 + 5_000, sighted_ms=0).task
    beaten = after(blind, report(Heartbeaten, task), T0 + 5_100)
    assert due(beaten, T0 + 5_700, sighted_ms=700).task.due_at_ms == T0 + 5_800
    assert after(blind, report(AttemptSucceeded, task)).state is TaskState.SUCCEEDED


def test_a_cancel_request_arms_the_timers_of_its_state() -> None:
    task = running(heartbeat_timeout_ms=700)
    beaten = after(task, report(Heartbeaten, task), T0 + 600)
    assert after(beaten, CancelRequested(), T0 + 650).due_at_ms == T0 + 1_300
