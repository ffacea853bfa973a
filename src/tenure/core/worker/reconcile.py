"""Compares what a worker says it holds with what it holds according to the server."""

from __future__ import annotations

from tenure.core.task.event import DeliveryMissed, TaskLost
from tenure.core.task.record import Task, TaskState


def missing(
    task: Task, *, heard_at_ms: int, session_no: int | None
) -> DeliveryMissed | TaskLost | None:
    """Return what it means that a worker does not name an attempt that it holds.

    Its set was made after the heartbeat that arrived at ``heard_at_ms``: a later confirmation may
    have crossed it. An unconfirmed attempt counts as missing only in the set that opens a session,
    ``session_no``, if it was handed to an earlier one.
    """
    if task.state is TaskState.DISPATCHED:
        if session_no is None or task.session_no >= session_no:
            return None
        return DeliveryMissed(attempt=task.attempt, worker_id=task.worker_id)
    if task.progress.confirmed_at_ms > heard_at_ms:
        return None
    return TaskLost(attempt=task.attempt, worker_id=task.worker_id)


def uncarried(task: Task) -> DeliveryMissed | TaskLost:
    """Return what it means that an answer lacks an attempt that its own call carried."""
    if task.state is TaskState.DISPATCHED:
        return DeliveryMissed(attempt=task.attempt, worker_id=task.worker_id)
    return TaskLost(attempt=task.attempt, worker_id=task.worker_id)


def counted_from_ms(heard_at_ms: int, *, now_ms: int) -> int:
    """Return since when a confirmation counts as later than a heartbeat.

    After the clock was set back no confirmation is known to be older than that heartbeat.
    """
    return 0 if heard_at_ms > now_ms else heard_at_ms
