"""Whether a worker may be stopped now, and what shows it.

A hand-out looks at the status of its worker in its own transaction, and whatever changes the status
waits for it. So after the commit of a drain, or of an end, nothing is handed out: a worker whose
last live attempt is over has nothing to lose. The status has to be read before the attempts.
"""

from __future__ import annotations

import enum

import msgspec

from tenure.core.task.record import TaskState
from tenure.core.worker.record import Worker, WorkerStatus


class StopReason(enum.StrEnum):
    """Why a worker may be stopped, or why not."""

    DRAINED = "drained"
    OFFLINE = "offline"
    NOT_DRAINED = "not_drained"
    HOLDS_ATTEMPTS = "holds_attempts"
    NO_WORKER = "no_worker"
    TOO_MANY_WORKERS = "too_many_workers"


class HeldAttempt(msgspec.Struct, frozen=True, gc=False):
    """A live attempt that names a worker."""

    task_id: str
    type: str
    state: TaskState
    attempt: int
    handed_at_ms: int


class HeldSum(msgspec.Struct, frozen=True, gc=False):
    """How many live attempts name a worker; counting may have stopped."""

    count: int = 0
    unconfirmed_count: int = 0
    oldest_at_ms: int | None = None
    is_exact: bool = True


def reason(worker: Worker, held: HeldSum) -> StopReason:
    """Return why a worker may be stopped, or why not."""
    if worker.status is WorkerStatus.ONLINE:
        return StopReason.NOT_DRAINED
    if held.count:
        return StopReason.HOLDS_ATTEMPTS
    is_offline = worker.status is WorkerStatus.OFFLINE
    return StopReason.OFFLINE if is_offline else StopReason.DRAINED


def is_safe(found: StopReason) -> bool:
    """Return whether a worker may be stopped without interrupting anything."""
    return found in {StopReason.DRAINED, StopReason.OFFLINE}
