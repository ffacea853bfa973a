"""What happens to a task when an attempt ends, and the record of that attempt."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenure.core.run.record import RunProgress
from tenure.core.task import crash_guard, deadline
from tenure.core.task.attempt import CHARGES, Attempt, Charge, Outcome
from tenure.core.task.effect import Decision, WakeQueue
from tenure.core.task.record import (
    ATTEMPT_HELD,
    NO_PROGRESS,
    AttemptProgress,
    Line,
    Reason,
    Task,
    TaskKind,
    TaskState,
)
from tenure.core.task.retry import ErrorInfo

_NO_LINE: Final = Line.NONE  # a global is found faster than a member of an enum


def end_attempt(task: Task, outcome: Outcome) -> Task:
    """Return the task with its live attempt ended; the caller sets its state."""
    return replace(task, last_outcome=outcome, progress=ended_progress(task, outcome))


def ended_progress(task: Task, outcome: Outcome) -> AttemptProgress:
    """Return the progress after the live attempt has ended."""
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
    task: Task, after: Task, outcome: Outcome, error: ErrorInfo | None, now_ms: int
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
        callback=task.progress.callback,
    )


def release(task: Task, now_ms: int) -> Decision:
    """End the live attempt without counting a failure; the task is pending again at once.

    After a cancel request an activity ends; the clean-up of a run is finished by the next attempt.
    """
    if task.is_cancel_requested and task.kind is TaskKind.ACTIVITY:
        return finish(task, TaskState.CANCELLED, now_ms, Outcome.RELEASED)
    return give_back(task, Outcome.RELEASED, now_ms, now_ms)


def give_back(
    task: Task, outcome: Outcome, run_at_ms: int, now_ms: int, error: ErrorInfo | None = None
) -> Decision:
    """End the live attempt and let the task wait for its next one."""
    ended = end_attempt(task, outcome)
    if ended.progress.callback is not None:
        # It belongs to the attempt, and stays in its record.
        ended = replace(ended, progress=replace(ended.progress, callback=None))
    if task.progress.pause_wanted:
        progress = replace(ended.progress, pause_wanted=False)
        paused = deadline.armed(
            replace(
                ended,
                state=TaskState.PAUSED,
                worker_id=None,
                run_at_ms=run_at_ms,
                progress=progress,
            )
        )
        return Decision(paused, ended=record(task, paused, outcome, error, now_ms))
    back = ready(ended, run_at_ms, now_ms=now_ms, keep_order=run_at_ms <= now_ms)
    ended_record = record(task, back.task, outcome, error, now_ms)
    return Decision(back.task, ended=ended_record, effects=back.effects)


def ready(
    task: Task, run_at_ms: int, *, now_ms: int | None = None, keep_order: bool = False
) -> Decision:
    """Make the task pending: claimable at once, or armed for ``run_at_ms``.

    ``keep_order`` leaves ``run_at_ms`` as it was, so that a task that was taken away from its
    worker keeps its place in the line.
    """
    now_ms = run_at_ms if now_ms is None else now_ms
    is_ready = run_at_ms <= now_ms
    is_guarded = crash_guard.is_suspect(task.progress)
    line = Line.SUSPECT if is_guarded else Line.RETURNED
    pending = deadline.armed(
        replace(
            task,
            state=TaskState.PENDING,
            worker_id=None,
            line=line if is_ready else Line.NONE,
            run_at_ms=task.run_at_ms if keep_order else run_at_ms,
            is_guarded=is_guarded,
            progress=replace(task.progress, ready_at_ms=run_at_ms, run=_awake(task.progress.run)),
        )
    )
    effects = (WakeQueue(task.namespace, task.queue),) if is_ready else ()
    return Decision(pending, effects=effects)


def _awake(run: RunProgress | None) -> RunProgress | None:
    """Return where a run stands that waits for nothing any more."""
    if run is None or not (run.wake_at_ms or run.news_at_ms or run.park):
        return run
    return replace(run, wake_at_ms=0, news_at_ms=0, park=None)


def fail(task: Task, reason: Reason, outcome: Outcome, error: ErrorInfo, now_ms: int) -> Decision:
    """Fail the task for good."""
    failed = replace(task, progress=replace(task.progress, reason=reason, error=error))
    return finish(failed, TaskState.FAILED, now_ms, outcome)


def finish(
    task: Task, state: TaskState, now_ms: int, outcome: Outcome, output: bytes | None = None
) -> Decision:
    """Give the task its one terminal outcome."""
    was_live = task.state in ATTEMPT_HELD or task.is_attempt_live
    finished = replace(
        task,
        state=state,
        line=_NO_LINE,
        last_outcome=outcome if was_live else task.last_outcome,
        due_at_ms=None,
        is_guarded=False,
        output=output,
        finished_at_ms=now_ms,
        progress=ended_progress(task, outcome) if was_live else task.progress,
    )
    return Decision(finished)
