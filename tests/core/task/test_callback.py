"""Attempts of endpoints: their times, what their processes say, and their tokens."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.access.task_token import Purpose
from tenure.core.task import callback_token
from tenure.core.task.attempt import Outcome
from tenure.core.task.callback import CallbackReport, CallbackTimes
from tenure.core.task.deadline import attempt_ends_at_ms
from tenure.core.task.effect import TellFreed
from tenure.core.task.event import (
    AttemptCancelled,
    AttemptFailed,
    AttemptReleased,
    AttemptSucceeded,
    CancelRequested,
    CancelSignalled,
    Confirmed,
    DeliveryAccepted,
    DeliveryMissed,
    DeliveryRefused,
    HandedOut,
    Heartbeaten,
)
from tenure.core.task.record import Reason, Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tests.core.task.tasks import T0, WORKER, after, decided, due, fresh, handed, refused

TIMES = CallbackTimes(
    heartbeat_interval_ms=1_000,
    heartbeat_timeout_ms=3_000,
    delivery_timeout_ms=9_000,
    token_ms=60_000,
)
SAID = CallbackReport(worker="one", started_at_ms=5)
ERROR = ErrorInfo(ErrorCategory.USER_CODE, "no")


def pushed(**changes: Any) -> Task:
    """Return a task that was handed out to an endpoint."""
    return after(fresh(**changes), HandedOut(worker_id=WORKER, times=TIMES))


def said(task: Task) -> CallbackReport:
    assert task.progress.callback is not None
    return task.progress.callback.report


def started(task: Task, at_ms: int = T0) -> Task:
    return after(task, Confirmed(attempt=task.attempt, said=SAID), at_ms)


def test_a_timeout_is_at_least_twice_the_interval() -> None:
    with pytest.raises(AssertionError):
        CallbackTimes(heartbeat_interval_ms=2, heartbeat_timeout_ms=3)


def test_an_attempt_keeps_the_times_of_its_endpoint_and_another_worker_has_none() -> None:
    task = pushed()
    assert task.progress.callback is not None
    assert task.progress.callback.times == TIMES
    assert handed(fresh()).progress.callback is None


def test_a_silent_attempt_of_an_endpoint_times_out_without_a_timeout_of_its_task() -> None:
    task = started(pushed())
    assert task.due_at_ms == T0 + 3_000
    assert due(task, T0 + 2_999).task.state is TaskState.RUNNING
    ended = due(task, T0 + 3_000)
    assert ended.task.state is TaskState.PENDING
    assert ended.task.last_outcome is Outcome.TIMED_OUT
    assert ended.task.progress.callback is None
    assert ended.ended is not None
    assert ended.ended.callback == task.progress.callback


def test_the_timeout_of_a_task_comes_before_that_of_its_endpoint() -> None:
    spec = replace(fresh().spec, heartbeat_timeout_ms=700)
    assert started(pushed(spec=spec)).due_at_ms == T0 + 700


def test_a_task_that_fails_by_silence_says_so() -> None:
    spec = replace(fresh().spec, retry=replace(fresh().spec.retry, maximum_attempts=1))
    ended = due(started(pushed(spec=spec)), T0 + 3_000).task
    assert (ended.state, ended.progress.reason) == (TaskState.FAILED, Reason.HEARTBEAT_TIMEOUT)
    assert said(ended) == SAID


def test_the_same_process_may_start_again_and_another_one_may_not() -> None:
    task = started(pushed())
    again = Confirmed(attempt=1, said=CallbackReport(worker="one", started_at_ms=9))
    assert said(after(task, again)).started_at_ms == 9
    other = Confirmed(attempt=1, said=CallbackReport(worker="two"))
    refusal = refused(task, other)
    assert (refusal.code, refusal.fields) == ("wrong_state", {"state": "RUNNING"})


def test_the_first_process_that_names_itself_has_the_attempt() -> None:
    nameless = after(pushed(), Heartbeaten(attempt=1, said=CallbackReport(beat_at_ms=3)))
    task = started(nameless)
    assert (said(task).worker, said(task).beat_at_ms) == ("one", 3)
    beaten = after(task, Heartbeaten(attempt=1, said=CallbackReport(worker="two")))
    assert said(beaten).worker == "one"


def test_reports_of_a_token_holder_need_no_endpoint() -> None:
    task = started(handed(fresh()))
    assert said(task) == SAID


def test_a_report_that_says_nothing_new_keeps_what_is_known() -> None:
    task = started(pushed())
    again = after(task, Confirmed(attempt=1, said=CallbackReport(worker="one")))
    assert again.progress.callback is task.progress.callback


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (AttemptFailed(attempt=1, error=ERROR), Outcome.FAILED),
        (AttemptReleased(attempt=1), Outcome.RELEASED),
    ],
)
def test_the_record_of_an_attempt_that_is_repeated_has_what_was_said(
    event: AttemptFailed | AttemptReleased, outcome: Outcome
) -> None:
    report = CallbackReport(completed_at_ms=8, metrics={"ms": 1.5}, output=b"1")
    decision = decided(started(pushed()), replace(event, said=report))
    assert decision.ended is not None
    assert decision.ended.outcome is outcome
    assert decision.ended.callback is not None
    assert decision.ended.callback.report == replace(report, worker="one", started_at_ms=5)
    assert decision.task.progress.callback is None


def test_a_finished_task_keeps_what_was_said_of_its_last_attempt() -> None:
    report = CallbackReport(completed_at_ms=8, metrics={"ms": 1.5})
    ended = after(started(pushed()), AttemptSucceeded(attempt=1, said=report))
    assert said(ended) == replace(report, worker="one", started_at_ms=5)
    stopped = CallbackReport(phase="loading", partial_progress=b"[1]")
    ended = after(started(pushed()), AttemptCancelled(attempt=1, said=stopped))
    assert (said(ended).phase, said(ended).partial_progress) == ("loading", b"[1]")


def test_the_grace_of_a_cancel_begins_with_the_heartbeat_that_carries_it() -> None:
    cancelling = after(started(pushed()), CancelRequested(reason="enough"), T0 + 1)
    assert cancelling.state is TaskState.CANCELLING
    # Nothing is pushed to an endpoint, and the answer to a start has no place for it.
    pushed_signal = after(cancelling, CancelSignalled(attempt=1), T0 + 2)
    again = after(pushed_signal, Confirmed(attempt=1, said=SAID, is_answered=False), T0 + 3)
    assert again.progress.grace_at_ms == 0
    beaten = after(again, Heartbeaten(attempt=1, said=CallbackReport()), T0 + 4)
    assert beaten.progress.grace_at_ms == T0 + 4


def test_a_task_that_was_cancelled_before_its_process_began_says_so() -> None:
    cancelled = after(pushed(), CancelRequested())
    refusal = refused(cancelled, Confirmed(attempt=1, said=SAID))
    assert refusal.code == "task_already_terminal"
    assert refusal.fields["state"] == "CANCELLED"


def test_a_token_names_the_task_in_the_place_of_a_run() -> None:
    task = pushed()
    claims = callback_token.claims(task, T0 + 7)
    assert claims.purpose is Purpose.CALLBACK
    assert (claims.run_id, claims.task_id, claims.attempt) == (task.id, task.id, 1)
    assert (claims.namespace, claims.issued_at_ms) == (task.namespace, T0 + 7)


@pytest.mark.parametrize(
    ("start_to_close_ms", "schedule_to_close_ms", "life_ms"),
    [
        (1_000, 0, 60_000),
        (100_000, 0, 100_000 + limits.CANCEL_GRACE_MS),
        (100_000, 50_000, 50_000 + limits.CANCEL_GRACE_MS),
        (0, 10**9, limits.CALLBACK_TOKEN_MS_MAX),
    ],
)
def test_a_token_lives_to_the_end_of_its_attempt_or_as_its_endpoint_says(
    start_to_close_ms: int, schedule_to_close_ms: int, life_ms: int
) -> None:
    spec = replace(
        fresh().spec, start_to_close_ms=start_to_close_ms, schedule_to_close_ms=schedule_to_close_ms
    )
    task = pushed(spec=spec)
    assert callback_token.life_ms(task, T0) == life_ms
    assert callback_token.claims(task, T0).expires_at_ms == T0 + life_ms


def test_a_task_without_an_end_has_a_token_all_the_same() -> None:
    task = pushed()
    bare = replace(task, spec=replace(task.spec, start_to_close_ms=0))
    assert attempt_ends_at_ms(bare) == 0
    assert callback_token.life_ms(bare, T0) == TIMES.token_ms
    assert callback_token.times(handed(fresh())) == CallbackTimes()


def test_a_token_is_renewed_from_the_middle_of_its_life_on() -> None:
    claims = callback_token.claims(pushed(), T0)
    middle_ms = T0 + (claims.expires_at_ms - T0) // 2
    assert not callback_token.is_renewal_due(claims, middle_ms - 1)
    assert callback_token.is_renewal_due(claims, middle_ms)


@pytest.mark.parametrize(
    ("interval_ms", "timeout_ms", "expected_ms"),
    [(0, 0, 1_000), (500, 0, 500), (5_000, 0, 1_500), (0, 600, 300), (0, 1, 1)],
)
def test_a_process_is_told_an_interval_that_keeps_its_attempt(
    interval_ms: int, timeout_ms: int, expected_ms: int
) -> None:
    spec = replace(fresh().spec, heartbeat_interval_ms=interval_ms, heartbeat_timeout_ms=timeout_ms)
    assert callback_token.interval_ms(pushed(spec=spec), T0) == expected_ms


def test_a_process_is_told_an_interval_that_renews_its_token_in_time() -> None:
    brief = replace(TIMES, token_ms=1_000)
    spec = replace(fresh().spec, start_to_close_ms=1, cancel_grace_ms=1)
    task = after(fresh(spec=spec), HandedOut(worker_id=WORKER, times=brief))
    assert callback_token.interval_ms(task, T0) == 250


def test_an_accepted_envelope_moves_the_delivery_check_to_the_time_of_the_endpoint() -> None:
    task = after(pushed(), DeliveryAccepted(attempt=1, worker_id=WORKER), T0 + 500)
    assert task.due_at_ms == T0 + 500 + 9_000
    assert task.progress.callback is not None
    assert task.progress.callback.accepted_at_ms == T0 + 500
    again = after(task, DeliveryAccepted(attempt=1, worker_id=WORKER), T0 + 600)
    assert again is task
    assert due(task, T0 + 9_499).task.state is TaskState.DISPATCHED
    ended = due(task, T0 + 9_500).task
    assert (ended.state, ended.last_outcome) == (TaskState.PENDING, Outcome.UNDELIVERED)
    assert ended.progress.failure_count == 0


def test_the_acceptance_of_what_is_no_endpoints_means_nothing() -> None:
    task = handed(fresh())
    assert after(task, DeliveryAccepted(attempt=1, worker_id=WORKER)) is task


def test_a_refused_envelope_fails_the_task() -> None:
    error = ErrorInfo(ErrorCategory.CONFIGURATION, "The endpoint answered 400.", retryable=False)
    ended = after(pushed(), DeliveryRefused(attempt=1, worker_id=WORKER, error=error))
    assert (ended.state, ended.progress.reason) == (TaskState.FAILED, Reason.NON_RETRYABLE)


def test_after_a_report_the_outcome_of_the_post_means_nothing() -> None:
    task = started(pushed())
    for event in (
        DeliveryAccepted(attempt=1, worker_id=WORKER),
        DeliveryRefused(attempt=1, worker_id=WORKER, error=ERROR),
        DeliveryMissed(attempt=1, worker_id=WORKER),
    ):
        assert refused(task, event).code == "wrong_state"


def test_the_end_of_an_attempt_by_its_process_frees_a_slot_of_the_endpoint() -> None:
    ended = decided(started(pushed()), AttemptSucceeded(attempt=1, said=CallbackReport()))
    assert ended.effects == (TellFreed(WORKER),)
    beaten = decided(pushed(), Heartbeaten(attempt=1, said=CallbackReport()))
    assert beaten.effects == ()
