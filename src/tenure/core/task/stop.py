"""Why a worker has to stop an attempt that it may still run, and when a stop is sent."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import Decision, Stop, StopCause, TellFreed, TellStop
from tenure.core.task.record import Reason, Task, TaskState

_CAUSES: Final = {
    Outcome.SUCCEEDED: StopCause.COMPLETED,
    Outcome.FAILED: StopCause.COMPLETED,
    # The task was ended without asking its worker, and is not cancelled.
    Outcome.CANCELLED: StopCause.TERMINATED,
    Outcome.TIMED_OUT: StopCause.TIMED_OUT,
}
# The worker is gone, or it never had the attempt, or it reports that it no longer has it.
_UNTOLD: Final = frozenset({Outcome.WORKER_LOST, Outcome.LOST_TASK, Outcome.UNDELIVERED})


def cause_of(task: Task, attempt: int) -> StopCause:
    """Return why an attempt that is not live has to stop."""
    if attempt != task.attempt or task.is_attempt_live or task.last_outcome is None:
        return StopCause.LOST_LEASE
    if task.state is TaskState.CANCELLED or task.progress.reason is Reason.CANCEL_TIMEOUT:
        return StopCause.CANCELLED
    return _CAUSES.get(task.last_outcome, StopCause.LOST_LEASE)


def with_freed(task: Task, decision: Decision) -> Decision:
    """Tell the server that drives an endpoint that its process has ended an attempt."""
    assert task.worker_id is not None
    if not task.is_attempt_live or decision.task.is_attempt_live:
        return decision
    return replace(decision, effects=(*decision.effects, TellFreed(task.worker_id)))


def with_stop(task: Task, decision: Decision) -> Decision:
    """Add a stop for the worker if something else ended its attempt by this decision."""
    after = decision.task
    assert task.worker_id is not None
    if not task.is_attempt_live or after.is_attempt_live:
        return decision
    if after.last_outcome in _UNTOLD or task.progress.release_at_ms:
        return decision
    stop = Stop(task.id, task.attempt, cause_of(after, task.attempt))
    return replace(decision, effects=(*decision.effects, TellStop(task.worker_id, stop)))
