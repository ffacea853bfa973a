"""What follows when an attempt failed, was lost or never arrived: another one, or the end."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.limits import (
    INTERRUPTIONS_MAX,
    UNDELIVERED_BACKOFF_MAX_MS,
    UNDELIVERED_BACKOFF_MIN_MS,
    UNDELIVERED_BEFORE_BACKOFF,
)
from tenure.core.task import attempt_end, crash_guard, deadline, exclusive, retry
from tenure.core.task.attempt import CHARGES, Charge, Outcome
from tenure.core.task.crash_guard import Loss
from tenure.core.task.deadline import DeadlineKind
from tenure.core.task.effect import Decision
from tenure.core.task.event import WorkerLost
from tenure.core.task.record import AttemptProgress, Reason, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo


def fail_attempt(
    task: Task,
    error: ErrorInfo,
    outcome: Outcome,
    jitter: float,
    now_ms: int,
    timeout: DeadlineKind | None = None,
) -> Decision:
    """End the live attempt with a failure that counts for the retry policy."""
    if task.is_cancel_requested:
        failed = replace(task, progress=replace(task.progress, error=error))
        return attempt_end.finish(failed, TaskState.CANCELLED, now_ms, outcome)
    failures = task.progress.failure_count + 1
    counted = replace(task, progress=replace(task.progress, failure_count=failures, error=error))
    policy = task.spec.retry
    delay_ms = retry.next_delay_ms(policy, failure_count=failures, error=error, jitter=jitter)
    if delay_ms is None:
        return attempt_end.fail(
            counted, _give_up_reason(error, task, timeout), outcome, error, now_ms
        )
    run_at_ms = now_ms + delay_ms
    if deadline.is_after_close(task, run_at_ms):
        return attempt_end.fail(counted, Reason.SCHEDULE_TO_CLOSE, outcome, error, now_ms)
    return attempt_end.give_back(counted, outcome, run_at_ms, now_ms, error)


def _give_up_reason(error: ErrorInfo, task: Task, timeout: DeadlineKind | None) -> Reason:
    if timeout is DeadlineKind.HEARTBEAT:
        return Reason.HEARTBEAT_TIMEOUT
    if timeout is not None:
        return Reason(timeout.name)
    is_retryable = retry.is_retryable(error, task.spec.retry)
    return Reason.RETRIES_EXHAUSTED if is_retryable else Reason.NON_RETRYABLE


def lose(task: Task, outcome: Outcome, loss: Loss | None, now_ms: int) -> Decision:
    """End an attempt whose worker is gone or no longer has it; ``None`` if that was noted."""
    assert CHARGES[outcome] is Charge.INTERRUPTIONS
    if task.is_cancel_requested and task.kind is TaskKind.ACTIVITY:
        return attempt_end.finish(task, TaskState.CANCELLED, now_ms, outcome)
    progress = task.progress if loss is None else _with_loss(task, loss, now_ms)
    interruptions = progress.interruption_count + 1
    progress = replace(progress, interruption_count=interruptions)
    lost = replace(task, progress=progress)
    if crash_guard.is_poisoned(progress):
        message = (
            f"{progress.loss_count} workers in a row were lost while they ran this task, "
            f"{progress.counted_count} of them without another suspect while other workers lived."
        )
        error = ErrorInfo(ErrorCategory.INFRASTRUCTURE, message)
        return attempt_end.fail(lost, Reason.POISONED, outcome, error, now_ms)
    if interruptions >= INTERRUPTIONS_MAX:
        message = f"The task was interrupted {interruptions} times."
        error = ErrorInfo(ErrorCategory.INFRASTRUCTURE, message)
        return attempt_end.fail(lost, Reason.INTERRUPTIONS_EXHAUSTED, outcome, error, now_ms)
    return attempt_end.give_back(lost, outcome, now_ms + crash_guard.backoff_ms(progress), now_ms)


def lose_worker(task: Task, event: WorkerLost, now_ms: int) -> Decision:
    """End an attempt whose worker is gone, or hold it until that worker has certainly stopped."""
    if not exclusive.is_held(task, event):
        return lose(task, Outcome.WORKER_LOST, event.loss, now_ms)
    held = exclusive.held(task, event)
    if held is task:
        return Decision(task)
    return Decision(deadline.armed(replace(held, progress=_with_loss(held, event.loss, now_ms))))


def _with_loss(task: Task, loss: Loss, now_ms: int) -> AttemptProgress:
    held_ms = max(0, now_ms - task.handed_at_ms)
    return crash_guard.after_loss(task.progress, loss, held_ms=held_ms)


def undelivered(task: Task, now_ms: int) -> Decision:
    """End an attempt that never reached its worker, without counting a failure."""
    count = task.progress.undelivered_count + 1
    run_at_ms = now_ms
    avoid_worker_id = None
    if count >= UNDELIVERED_BEFORE_BACKOFF:
        doublings = min(count - UNDELIVERED_BEFORE_BACKOFF, 16)
        run_at_ms += min(UNDELIVERED_BACKOFF_MIN_MS << doublings, UNDELIVERED_BACKOFF_MAX_MS)
        avoid_worker_id = task.worker_id
    progress = replace(task.progress, undelivered_count=count, avoid_worker_id=avoid_worker_id)
    return attempt_end.give_back(
        replace(task, progress=progress), Outcome.UNDELIVERED, run_at_ms, now_ms
    )
