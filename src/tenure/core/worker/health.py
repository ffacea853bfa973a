"""Health: how a worker appears, shown with its status and computed when it is read.

Nothing is decided by it and nothing is stored. The lease says whether a worker is alive.
"""

from __future__ import annotations

import enum

from tenure.core.limits import LOOP_LAG_BLOCKED_MS
from tenure.core.worker.lease import Lease, is_late


class Health(enum.StrEnum):
    """The first that applies, in this order."""

    SUSPECT = "suspect"
    LATE = "late"
    BLOCKED = "blocked"
    DEAF = "deaf"
    STUCK = "stuck"
    HEALTHY = "healthy"


def judge(lease: Lease, *, now_ms: int, is_deaf: bool = False) -> Health:
    """Return the health of the worker of a lease.

    A worker is late if the next but one heartbeat is due and the next was not sent, and a served
    one while the last call to it failed. Only the
    server knows ``is_deaf``: a task that the worker could run has waited for two intervals, and
    the worker has free slots but neither an open poll nor credit.
    """
    if lease.suspect_until_ms is not None:
        return Health.SUSPECT
    if lease.failures:
        return Health.LATE
    if is_late(beat_at_ms=lease.beat_at_ms, lease_ms=lease.lease_ms, now_ms=now_ms):
        return Health.LATE
    if lease.loop_lag_ms > LOOP_LAG_BLOCKED_MS:
        return Health.BLOCKED
    if is_deaf:
        return Health.DEAF
    return Health.STUCK if lease.stuck_count else Health.HEALTHY
