"""What the end of an attempt leaves on its task, and the record that is kept of it."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.task import crash_guard
from tenure.core.task.attempt import CHARGES, Attempt, Charge, Outcome
from tenure.core.task.record import NO_PROGRESS, AttemptProgress, Task
from tenure.core.task.retry import ErrorInfo


def end_attempt(task: Task, outcome: Outcome) -> Task:
    """Return the task with its live attempt ended; its state is for the caller to set."""
    return replace(task, last_outcome=outcome, progress=ended_progress(task, outcome))


def ended_progress(task: Task, outcome: Outcome) -> AttemptProgress:
    """Return what is left of the progress when the live attempt ends."""
    progress = task.progress
    if progress is NO_PROGRESS:
        return progress
    # Losses and missed deliveries count in a row: any other outcome resets them.
    is_loss = CHARGES[outcome] is Charge.INTERRUPTIONS
    is_missed = outcome is Outcome.UNDELIVERED
    return replace(
        progress if is_loss else crash_guard.cleared(progress),
        is_async=False,
        grace_at_ms=0,
        exclusive_at_ms=0,
        release_at_ms=0,
        release_lease_ms=0,
        undelivered_count=progress.undelivered_count if is_missed else 0,
        avoid_worker_id=progress.avoid_worker_id if is_missed else None,
    )


def record(
    task: Task,
    after: Task,
    outcome: Outcome,
    error: ErrorInfo | None,
    now_ms: int,
) -> Attempt:
    """Return the record of an ended attempt that was not its task's last one."""
    return Attempt(
        namespace=task.namespace,
        task_id=task.id,
        number=task.attempt,
        outcome=outcome,
        worker_id=task.worker_id,
        handed_at_ms=task.handed_at_ms,
        ended_at_ms=now_ms,
        state_after=after.state,
        error=error,
    )
