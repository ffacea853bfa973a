"""Exclusive attempts: when the server may release one that its worker may still run.

A worker that cannot be reached stops its exclusive work by its own clock: when its lease may have
ended, and at the timeouts of the attempt, each counted from when it *sent* the last accepted
message. The server counts from later and waits longer, so that the worker has stopped or killed the
code at least ``EXCLUSIVE_MARGIN_MS`` before. Clocks may differ by one part in
``CLOCK_DRIFT_PARTS``.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.limits import CLOCK_DRIFT_PARTS, EXCLUSIVE_KILL_MS, EXCLUSIVE_MARGIN_MS
from tenure.core.task.event import WorkerLost
from tenure.core.task.record import Task


def confirmed(task: Task, now_ms: int) -> Task:
    """Note that the live attempt is exclusive; its worker counts from before this instant."""
    return replace(task, progress=replace(task.progress, exclusive_at_ms=now_ms))


def is_held(task: Task, event: WorkerLost) -> bool:
    """Return whether an attempt stays with its lost worker until the lease ends."""
    return bool(task.progress.exclusive_at_ms and event.lease_ms)


def held(task: Task, event: WorkerLost) -> Task:
    """Hold an attempt until the lease of its lost worker ends; doing so twice changes nothing.

    The worker has its own margin within its lease.
    """
    if task.progress.release_at_ms:
        return task
    progress = replace(
        task.progress,
        release_at_ms=event.lease_until_ms + _late_ms(event.lease_ms),
        release_lease_ms=event.lease_ms,
    )
    return replace(task, progress=progress)


def margin_ms(task: Task, period_ms: int) -> int:
    """Return how much later than its worker the server ends an attempt for a timeout."""
    if not task.progress.exclusive_at_ms:
        return 0
    return EXCLUSIVE_MARGIN_MS + _late_ms(period_ms)


def _late_ms(period_ms: int) -> int:
    """Return how late the work may end: the time for a kill, and the drift of a slow clock."""
    return EXCLUSIVE_KILL_MS + period_ms // CLOCK_DRIFT_PARTS
