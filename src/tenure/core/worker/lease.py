"""The lease: until when the server considers a worker alive, and the heartbeat token.

A worker is active exactly while its lease row exists. The row decides, never a reader's clock:
until a judgement is written, a heartbeat with the right token renews the lease, even when
``lease_until_ms`` has passed. A refused heartbeat changes nothing.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec.structs import replace

from tenure.core.limits import SUSPECT_GRACE_MS
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
        """Check the invariants of a lease."""
        assert self.token >= 1
        assert self.lease_ms > 0


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
    """A session was opened: a suspect worker is connected again."""

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
        # After the clock was set back no instant shows what came before that heartbeat.
        previous_beat_at_ms=0 if lease.beat_at_ms > now_ms else lease.beat_at_ms,
        total_completed=_total(lease.total_completed, event.total_completed, event.completed_delta),
        total_failed=_total(lease.total_failed, event.total_failed, event.failed_delta),
        active_count=event.active_count,
        loop_lag_ms=event.loop_lag_ms,
        stuck_count=event.stuck_count,
        suspect_until_ms=None,
        failures=0,
    )


def _total(old: int, total: int, delta: int) -> int:
    """Return the new total: the worker's total, else its delta added; it never decreases."""
    return max(old, total) if total >= 0 else old + delta


def token_mismatch(worker_id: str, current: int) -> Rejection:
    """Refuse a heartbeat whose token is not the last one that was returned."""
    return Rejection(
        "token_mismatch",
        f"Worker {worker_id}: use the current token and resend the full held set.",
        {"current_token": str(current)},
    )


def is_late(*, beat_at_ms: int, lease_ms: int, now_ms: int) -> bool:
    """Return whether a heartbeat was missed: such a worker keeps its work and gets no more."""
    return beat_at_ms <= late_since_ms(lease_ms=lease_ms, now_ms=now_ms)


def late_since_ms(*, lease_ms: int, now_ms: int) -> int:
    """Return the instant since which a worker must have sent a heartbeat to be not late."""
    return now_ms - 2 * interval_ms(lease_ms)


def granted_lease_ms(asked_ms: int, *, default_ms: int, least_ms: int, most_ms: int) -> int:
    """Return the lease for a request: the requested one, within the limits."""
    return min(max(asked_ms, least_ms), most_ms) if asked_ms else default_ms


def interval_ms(lease_ms: int) -> int:
    """Return the heartbeat interval: a third of the lease, so lease >= 2 x interval."""
    return max(1, lease_ms // 3)
