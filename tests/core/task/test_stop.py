"""When a worker is told to stop an attempt, and why."""

from __future__ import annotations

import pytest

from tenure.core.task.decide import decide
from tenure.core.task.effect import Decision, Stop, StopCause, TellStop
from tenure.core.task.event import (
    AttemptCancelled,
    AttemptFailed,
    AttemptReleased,
    AttemptSucceeded,
    CancelRequested,
    Confirmed,
    Due,
    Heartbeaten,
    TaskEvent,
    TaskLost,
    Terminated,
    WorkerLost,
)
from tenure.core.task.record import Task
from tenure.core.task.stop import cause_of
from tests.core.task.tasks import FAULT, T0, TASK_ID, WORKER, fresh, handed, running


def stops(task: Task, event: TaskEvent, at_ms: int = T0) -> list[StopCause]:
    """Return why the worker is told to stop, if it is."""
    decision = decide(task, event, at_ms)
    assert isinstance(decision, Decision), decision
    told = [each for each in decision.effects if isinstance(each, TellStop)]
    assert all((each.worker_id, each.stop.task_id) == (WORKER, TASK_ID) for each in told)
    return [each.stop.cause for each in told]


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (AttemptSucceeded(attempt=1), StopCause.COMPLETED),
        (AttemptFailed(attempt=1, error=FAULT), StopCause.COMPLETED),
        (AttemptCancelled(attempt=1), StopCause.CANCELLED),
        (AttemptReleased(attempt=1), StopCause.LOST_LEASE),
        (Terminated(), StopCause.TERMINATED),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, StopCause) else value.value,
)
def test_a_worker_is_told_what_somebody_else_did_with_its_attempt(
    event: TaskEvent, cause: StopCause
) -> None:
    assert stops(running(), event) == [cause]


@pytest.mark.parametrize(
    "event",
    [
        AttemptSucceeded(attempt=1, worker_id=WORKER),
        AttemptFailed(attempt=1, worker_id=WORKER, error=FAULT),
        AttemptCancelled(attempt=1, worker_id=WORKER),
        AttemptReleased(attempt=1, worker_id=WORKER),
        TaskLost(attempt=1, worker_id=WORKER),
        WorkerLost(worker_id=WORKER),
        Confirmed(attempt=1),
        Heartbeaten(attempt=1),
        CancelRequested(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_worker_is_not_told_of_what_it_said_itself_or_still_runs(event: TaskEvent) -> None:
    assert stops(running(), event) == []


def test_a_cancel_before_the_confirmation_stops_the_attempt_as_cancelled() -> None:
    assert stops(handed(fresh()), CancelRequested()) == [StopCause.CANCELLED]


def test_a_timeout_after_a_cancel_is_still_a_cancel() -> None:
    task = running(schedule_to_close_ms=500, start_to_close_ms=0)
    cancelling = decide(task, CancelRequested(), T0)
    assert isinstance(cancelling, Decision)
    due = Due(sighted_ms=10**9)
    assert stops(cancelling.task, due, T0 + 10_000) == [StopCause.CANCELLED]


def test_a_delivery_that_was_missed_is_no_stop() -> None:
    task = handed(fresh())
    assert stops(task, Due(sighted_ms=10**9), T0 + 120_000) == []


def test_an_attempt_that_was_handed_out_again_is_lost() -> None:
    task = running()
    assert cause_of(task, 1) is StopCause.LOST_LEASE
    assert cause_of(task, 7) is StopCause.LOST_LEASE


@pytest.mark.parametrize(
    ("event", "reason"), [(Terminated(), "terminated"), (AttemptSucceeded(attempt=1), "completed")]
)
def test_a_late_report_is_refused_with_the_reason_to_stop(event: TaskEvent, reason: str) -> None:
    ended = decide(running(), event, T0)
    assert isinstance(ended, Decision)
    refused = decide(ended.task, Confirmed(attempt=1, worker_id=WORKER), T0)
    assert not isinstance(refused, Decision)
    assert refused.fields["reason"] == reason


def test_a_stop_names_its_attempt() -> None:
    decision = decide(running(), Terminated(), T0)
    assert isinstance(decision, Decision)
    assert decision.effects == (TellStop(WORKER, Stop(TASK_ID, 1, StopCause.TERMINATED)),)
