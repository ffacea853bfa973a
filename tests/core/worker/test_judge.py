"""When a worker is taken offline, and when it is spared."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.worker.judge import StaleServer, is_mass_close, is_silent, judge
from tenure.core.worker.lease import CallFailed, Lease, LeaseEvent, SessionLost, SessionResumed
from tenure.core.worker.record import EndReason, WorkerMode
from tests.core.worker.test_lease import LEASE, T0, after, beat


def judged(lease: Lease, at_ms: int, **context: Any) -> EndReason | None:
    known: dict[str, Any] = {"mode": WorkerMode.SESSION, "sighted_ms": 10**9, "server": None}
    return judge(lease, now_ms=at_ms, **{**known, **context})


def test_a_broken_connection_makes_the_worker_suspect_for_three_seconds() -> None:
    lease = after(LEASE, SessionLost())
    assert lease.suspect_until_ms == T0 + 3_000
    assert lease.lease_until_ms == LEASE.lease_until_ms
    assert judged(lease, T0 + 2_999) is None
    assert judged(lease, T0 + 3_000) is EndReason.LEASE_EXPIRED


@pytest.mark.parametrize("event", [beat(), SessionResumed(server_id="server-2")])
def test_a_new_session_or_a_heartbeat_clears_the_suspicion(event: LeaseEvent) -> None:
    lease = after(after(LEASE, SessionLost()), event)
    assert (lease.suspect_until_ms, lease.server_id) == (None, "server-2")
    assert judged(lease, T0 + 3_000) is None


def test_a_lease_ends_at_its_instant() -> None:
    assert judged(LEASE, T0 + 14_999) is None
    assert judged(LEASE, T0 + 15_000) is EndReason.LEASE_EXPIRED


def test_a_lease_is_judged_after_one_full_lease_of_sight() -> None:
    assert judged(LEASE, T0 + 99_000, sighted_ms=14_999) is None
    assert judged(LEASE, T0 + 99_000, sighted_ms=15_000) is EndReason.LEASE_EXPIRED


def test_a_suspicion_is_judged_after_one_full_grace_of_sight() -> None:
    lease = after(LEASE, SessionLost())
    assert judged(lease, T0 + 9_000, sighted_ms=2_999) is None
    assert judged(lease, T0 + 9_000, sighted_ms=3_000) is EndReason.LEASE_EXPIRED
    assert judged(LEASE, T0 + 9_000, sighted_ms=3_000) is None


def test_the_sight_for_a_suspicion_is_as_long_as_the_grace_of_the_server() -> None:
    lease = after(LEASE, SessionLost(grace_ms=500))
    assert lease.suspect_until_ms == T0 + 500
    assert judged(lease, T0 + 499, suspect_grace_ms=500) is None
    assert judged(lease, T0 + 500, suspect_grace_ms=500, sighted_ms=499) is None
    expired = judged(lease, T0 + 500, suspect_grace_ms=500, sighted_ms=500)
    assert expired is EndReason.LEASE_EXPIRED


def test_a_served_worker_is_unreachable_after_its_lease_and_three_failures() -> None:
    lease = LEASE
    for _ in range(2):
        lease = after(lease, CallFailed())
    assert judged(lease, T0 + 99_000, mode=WorkerMode.SERVED) is None
    lease = after(lease, CallFailed())
    assert judged(lease, T0 + 14_999, mode=WorkerMode.SERVED) is None
    assert judged(lease, T0 + 15_000, mode=WorkerMode.SERVED) is EndReason.UNREACHABLE


def test_an_answer_forgets_the_failures() -> None:
    assert after(after(LEASE, CallFailed()), beat()).failures == 0


@pytest.mark.parametrize(("lease_ms", "spared_ms"), [(15_000, 30_000), (60_000, 60_000)])
def test_workers_of_a_server_that_vanished_get_time_to_find_another(
    lease_ms: int, spared_ms: int
) -> None:
    lease = replace(LEASE, lease_ms=lease_ms, suspect_until_ms=T0)
    seen_at_ms = T0 + 5_000
    spared_until_ms = seen_at_ms + spared_ms
    server = StaleServer(seen_at_ms)
    assert judged(lease, spared_until_ms - 1, server=server) is None
    assert judged(lease, spared_until_ms, server=server) is EndReason.LEASE_EXPIRED


@pytest.mark.parametrize(
    ("lease_ms", "lease_count", "left_count", "spared_ms"),
    [
        (15_000, 10, 4, 20_000),
        (15_000, 10, 5, 30_000),
        (15_000, 1, 1, 30_000),
        # Never later than otherwise.
        (28_000, 10, 4, 30_000),
        (60_000, 10, 0, 60_000),
    ],
)
def test_who_does_not_come_back_while_most_others_do_is_judged_sooner(
    lease_ms: int, lease_count: int, left_count: int, spared_ms: int
) -> None:
    lease = replace(LEASE, lease_ms=lease_ms)
    server = StaleServer(T0 + 5_000, lease_count, left_count)
    spared_until_ms = T0 + 5_000 + spared_ms
    assert judged(lease, spared_until_ms - 1, server=server) is None
    assert judged(lease, spared_until_ms, server=server) is EndReason.LEASE_EXPIRED


@pytest.mark.parametrize(
    ("closed", "still_open", "is_mass"),
    [(10, 0, False), (11, 0, True), (11, 89, True), (11, 100, False), (100, 900, False)],
)
def test_a_mass_of_closed_sessions_is_more_than_ten_and_more_than_a_tenth(
    closed: int, still_open: int, is_mass: bool
) -> None:
    assert is_mass_close(closed_count=closed, open_count=still_open) is is_mass


def test_a_server_is_silent_that_has_not_touched_its_row_or_did_so_in_the_future() -> None:
    assert not is_silent(seen_at_ms=None, now_ms=T0)
    assert not is_silent(seen_at_ms=T0, now_ms=T0)
    assert not is_silent(seen_at_ms=T0 - limits.SIGHT_STALL_MS, now_ms=T0)
    assert is_silent(seen_at_ms=T0 - limits.SIGHT_STALL_MS - 1, now_ms=T0)
    assert is_silent(seen_at_ms=T0 + 1, now_ms=T0)
