"""The lease: until when the server considers a worker alive, and the heartbeat token.

A worker is active exactly while its lease row exists. The row decides, never a reader's clock:
until a judgement is written, a heartbeat with the right token renews the lease, even when
``lease_until_ms`` has passed. A refused heartbeat changes nothing.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec.structs import replace

from tenure.core.limits import (
    MASS_CLOSE_SESSIONS_MIN,
    MASS_CLOSE_SHARE,
    RETURN_ELSEWHERE_MS,
    SERVED_FAILURES_MAX,
    SIGHT_STALL_MS,
    STALE_SERVER_MS,
    SUSPECT_GRACE_MS,
)
from tenure.core.worker.record import EndReason, WorkerMode
from tenure.errors import Rejection


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The narrow row that each heartbeat writes."""

    worker_id: str
    namespace: str
    server_id: str
    lease_until_ms: int
    lease_ms: int
    token: int = 1
    beat_at_ms: int = 0
    previous_beat_at_ms: int = 0
    total_completed: int = 0
    total_failed: int = 0
    active_count: int = 0
    loop_lag_ms: int = 0
    stuck_count: int = 0
    suspect_until_ms: int | None = None
    failures: int = 0

    def __post_init__(self) -> None:
        """Assert what holds for every lease."""
        assert self.token >= 1
        assert self.lease_ms > 0


class StaleServer(msgspec.Struct, frozen=True, gc=False):
    """A server that no longer touches its row: when it did, and its leases then and now."""

    seen_at_ms: int
    lease_count: int = 0
    left_count: int = 0

    def spared_until_ms(self, lease_ms: int) -> int:
        """Return until when its workers are spared: they had nobody to talk to."""
        spared_ms = max(lease_ms, STALE_SERVER_MS)
        if 2 * self.left_count < self.lease_count:
            # Most have found another server; who has not is probably dead as well.
            spared_ms = min(spared_ms, lease_ms + RETURN_ELSEWHERE_MS)
        return self.seen_at_ms + spared_ms


class Beat(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A heartbeat. Counters are totals, or deltas that count only with a matching token."""

    token: int
    server_id: str
    lease_ms: int = 0
    total_completed: int = -1
    total_failed: int = -1
    completed_delta: int = 0
    failed_delta: int = 0
    active_count: int = 0
    loop_lag_ms: int = 0
    stuck_count: int = 0


class SessionLost(msgspec.Struct, frozen=True, gc=False):
    """The peer closed the current session without a goodbye."""

    grace_ms: int = SUSPECT_GRACE_MS


class SessionResumed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A session was opened: whoever was suspected is here again."""

    server_id: str


class CallFailed(msgspec.Struct, frozen=True, gc=False):
    """The server could not reach a served worker."""


LeaseEvent = Beat | SessionLost | SessionResumed | CallFailed


def decide(lease: Lease, event: LeaseEvent, now_ms: int) -> Lease | Rejection:
    """Return the lease after ``event``, or why it is refused."""
    match event:
        case Beat():
            return _beat(lease, event, now_ms)
        case SessionLost():
            return replace(lease, suspect_until_ms=now_ms + event.grace_ms)
        case SessionResumed():
            return replace(lease, suspect_until_ms=None, server_id=event.server_id)
        case CallFailed():
            return replace(lease, failures=lease.failures + 1)
        case _:
            assert_never(event)


def _beat(lease: Lease, event: Beat, now_ms: int) -> Lease | Rejection:
    if event.token != lease.token:
        return token_mismatch(lease.worker_id, lease.token)
    lease_ms = event.lease_ms or lease.lease_ms
    return replace(
        lease,
        token=lease.token + 1,
        lease_ms=lease_ms,
        lease_until_ms=now_ms + lease_ms,
        server_id=event.server_id,
        beat_at_ms=now_ms,
        # After the clock went back no instant tells what came before that heartbeat.
        previous_beat_at_ms=0 if lease.beat_at_ms > now_ms else lease.beat_at_ms,
        total_completed=_total(
            lease.total_completed,
            event.total_completed,
            event.completed_delta,
        ),
        total_failed=_total(lease.total_failed, event.total_failed, event.failed_delta),
        active_count=event.active_count,
        loop_lag_ms=event.loop_lag_ms,
        stuck_count=event.stuck_count,
        suspect_until_ms=None,
        failures=0,
    )


def _total(old: int, total: int, delta: int) -> int:
    """Return the new total: what the worker says, else its delta, never going down."""
    return max(old, total) if total >= 0 else old + delta


def token_mismatch(worker_id: str, current: int) -> Rejection:
    """Refuse a heartbeat whose token is not the one that was returned last."""
    return Rejection(
        "token_mismatch",
        f"Worker {worker_id}: use the current token and resend the full held set.",
        {"current_token": str(current)},
    )


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

    ``server`` is the one that heard it last, if that went stale: its workers get time to find
    another one.
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
    """Tell whether a server has stopped touching its row; another one hears its workers.

    One that was seen in the future has not touched its row since the clock went back.
    """
    return seen_at_ms is not None and not 0 <= now_ms - seen_at_ms <= SIGHT_STALL_MS


def is_late(*, beat_at_ms: int, lease_ms: int, now_ms: int) -> bool:
    """Tell whether a heartbeat was missed: such a worker keeps its work and gets none."""
    return beat_at_ms <= late_since_ms(lease_ms=lease_ms, now_ms=now_ms)


def late_since_ms(*, lease_ms: int, now_ms: int) -> int:
    """Return the instant since which a heartbeat must have come for its worker not to be late."""
    return now_ms - 2 * interval_ms(lease_ms)


def is_mass_close(*, closed_count: int, open_count: int) -> bool:
    """Tell whether so many sessions ended together that the fault is not the workers'."""
    limit = max(MASS_CLOSE_SESSIONS_MIN, MASS_CLOSE_SHARE * (open_count + closed_count))
    return closed_count > limit


def granted_lease_ms(asked_ms: int, *, default_ms: int, least_ms: int, most_ms: int) -> int:
    """Return the lease for a request: what was asked for, within the limits."""
    return min(max(asked_ms, least_ms), most_ms) if asked_ms else default_ms


def interval_ms(lease_ms: int) -> int:
    """Return how often a worker beats: three times within its lease, so lease >= 2 x interval."""
    return max(1, lease_ms // 3)
