"""The judgement: when a worker whose lease has ended, or who is suspect, is taken offline."""

from __future__ import annotations

import msgspec

from tenure.core.limits import (
    MASS_CLOSE_SESSIONS_MIN,
    MASS_CLOSE_SHARE,
    RETURN_ELSEWHERE_MS,
    SERVED_FAILURES_MAX,
    SIGHT_STALL_MS,
    STALE_SERVER_MS,
    SUSPECT_GRACE_MS,
)
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import EndReason, WorkerMode


class StaleServer(msgspec.Struct, frozen=True, gc=False):
    """A server that no longer touches its row: when it did, and its leases then and now."""

    seen_at_ms: int
    lease_count: int = 0
    left_count: int = 0

    def spared_until_ms(self, lease_ms: int) -> int:
        """Return until when its workers are not judged: they had no server to talk to."""
        spared_ms = max(lease_ms, STALE_SERVER_MS)
        if 2 * self.left_count < self.lease_count:
            # Most have connected to another server; a worker that has not is probably dead too.
            spared_ms = min(spared_ms, lease_ms + RETURN_ELSEWHERE_MS)
        return self.seen_at_ms + spared_ms


def judge(
    lease: Lease,
    *,
    mode: WorkerMode,
    now_ms: int,
    sighted_ms: int,
    server: StaleServer | None,
    suspect_grace_ms: int = SUSPECT_GRACE_MS,
) -> EndReason | None:
    """Return why the worker is to be taken offline now, or ``None``.

    ``server`` is the server that got its last heartbeat, if that server is silent: its workers get
    time to connect to another one.
    """
    if server is not None and now_ms < server.spared_until_ms(lease.lease_ms):
        return None
    is_suspect = lease.suspect_until_ms is not None and now_ms >= lease.suspect_until_ms
    if is_suspect and sighted_ms >= suspect_grace_ms:
        return EndReason.LEASE_EXPIRED
    if now_ms < lease.lease_until_ms or sighted_ms < lease.lease_ms:
        return None
    if mode is not WorkerMode.SERVED:
        return EndReason.LEASE_EXPIRED
    return EndReason.UNREACHABLE if lease.failures >= SERVED_FAILURES_MAX else None


def is_silent(*, seen_at_ms: int | None, now_ms: int) -> bool:
    """Return whether a server has stopped touching its row; another one serves its workers.

    If it was seen in the future, it has not touched its row since the clock was set back.
    """
    return seen_at_ms is not None and not 0 <= now_ms - seen_at_ms <= SIGHT_STALL_MS


def is_mass_close(*, closed_count: int, open_count: int) -> bool:
    """Return whether so many sessions ended together that the workers are not the cause."""
    limit = max(MASS_CLOSE_SESSIONS_MIN, MASS_CLOSE_SHARE * (open_count + closed_count))
    return closed_count > limit
