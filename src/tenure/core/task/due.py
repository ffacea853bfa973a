"""What a timer leads to: a deadline of the task, or nothing because the task has changed."""

from __future__ import annotations

from typing import Final, assert_never

from tenure.core.run import wake_up
from tenure.core.task import attempt_end, attempt_failure, deadline
from tenure.core.task.attempt import Outcome
from tenure.core.task.deadline import DeadlineKind
from tenure.core.task.effect import Decision
from tenure.core.task.event import Due
from tenure.core.task.record import Reason, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo

# Timeouts have plain names here, because readers may know them from any edge or language.
_TIMEOUT_MESSAGES: Final = {
    DeadlineKind.START_TO_CLOSE: "The attempt took longer than its start-to-close timeout.",
    DeadlineKind.HEARTBEAT: "No heartbeat arrived within the heartbeat timeout.",
    DeadlineKind.SCHEDULE_TO_START: "No worker took the task within its schedule-to-start timeout.",
    DeadlineKind.SCHEDULE_TO_CLOSE: "The task did not end within its schedule-to-close timeout.",
}
_RUN_TIMEOUT_MESSAGE: Final = "The run did not end within its timeout."


def due(task: Task, event: Due, now_ms: int) -> Decision:
    """Check the row again: a timer is never authoritative."""
    expired = deadline.first_expired(task, now_ms=now_ms, sighted_ms=event.sighted_ms)
    match expired:
        case None:
            return Decision(deadline.rearmed(task, now_ms, event.sighted_ms))
        case DeadlineKind.START:
            return attempt_end.ready(task, task.run_at_ms, now_ms=now_ms)
        case DeadlineKind.WAKE:
            return wake_up.wake(task, now_ms)
        case DeadlineKind.DELIVERY:
            return attempt_failure.undelivered(task, now_ms)
        case DeadlineKind.RELEASE:
            # What the loss means for the crash guard was noted when its worker was lost.
            return attempt_failure.lose(task, Outcome.WORKER_LOST, None, now_ms)
        case DeadlineKind.CANCEL_GRACE:
            return _cancel_overdue(task, now_ms)
        case DeadlineKind.SCHEDULE_TO_START | DeadlineKind.SCHEDULE_TO_CLOSE:
            return _overdue(task, expired, now_ms)
        case DeadlineKind.START_TO_CLOSE | DeadlineKind.HEARTBEAT:
            error = ErrorInfo(ErrorCategory.TIMEOUT, _TIMEOUT_MESSAGES[expired])
            return attempt_failure.fail_attempt(
                task, error, Outcome.TIMED_OUT, event.jitter, now_ms, expired
            )
        case _:
            assert_never(expired)


def _cancel_overdue(task: Task, now_ms: int) -> Decision:
    if task.worker_id is None:
        # No worker holds a task that is completed from outside, so none failed to stop.
        return attempt_end.finish(task, TaskState.CANCELLED, now_ms, Outcome.TIMED_OUT)
    error = ErrorInfo(
        ErrorCategory.CANCELLED, "The activity did not stop within its cancel grace period."
    )
    return attempt_end.fail(task, Reason.CANCEL_TIMEOUT, Outcome.CANCEL_TIMEOUT, error, now_ms)


def _overdue(task: Task, expired: DeadlineKind, now_ms: int) -> Decision:
    if task.is_cancel_requested:
        return attempt_end.finish(task, TaskState.CANCELLED, now_ms, Outcome.TIMED_OUT)
    is_run = task.spec.kind is TaskKind.WORKFLOW and expired is DeadlineKind.SCHEDULE_TO_CLOSE
    message = _RUN_TIMEOUT_MESSAGE if is_run else _TIMEOUT_MESSAGES[expired]
    error = ErrorInfo(ErrorCategory.TIMEOUT, message)
    return attempt_end.fail(task, Reason(expired.name), Outcome.TIMED_OUT, error, now_ms)
