"""The lease of a worker: tokens, totals, suspicion and the judgement."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.worker.lease import (
    Beat,
    CallFailed,
    Lease,
    LeaseEvent,
    SessionLost,
    SessionResumed,
    StaleServer,
    decide,
    granted_lease_ms,
    interval_ms,
    is_mass_close,
    is_silent,
    judge,
    token_mismatch,
)
from tenure.core.worker.record import EndReason, WorkerMode
from tenure.errors import Rejection

T0: Final = 1_000_000
LEASE: Final = Lease(
    worker_id="worker-1",
    namespace="acme/default",
    server_id="server-1",
    lease_until_ms=T0 + 15_000,
    lease_ms=15_000,
    token=4,
    beat_at_ms=T0,
)


def after(lease: Lease, event: LeaseEvent, at_ms: int = T0) -> Lease:
    result = decide(lease, event, at_ms)
    assert isinstance(result, Lease), result
    return result


def beat(token: int = 4, **fields: Any) -> Beat:
    return Beat(token=token, server_id="server-2", **fields)


def judged(lease: Lease, at_ms: int, **context: Any) -> EndReason | None:
    known: dict[str, Any] = {
        "mode": WorkerMode.SESSION,
        "sighted_ms": 10**9,
        "server": None,
    }
    return judge(lease, now_ms=at_ms, **{**known, **context})


def test_an_accepted_heartbeat_renews_the_lease_from_now_and_changes_the_token() -> None:
    lease = after(LEASE, beat(active_count=3, loop_lag_ms=2, stuck_count=1), T0 + 5_000)
    assert (lease.token, lease.lease_until_ms) == (5, T0 + 20_000)
    assert (lease.beat_at_ms, lease.previous_beat_at_ms) == (T0 + 5_000, T0)
    assert (lease.active_count, lease.loop_lag_ms, lease.stuck_count) == (3, 2, 1)
    assert lease.server_id == "server-2"


def test_a_heartbeat_renews_even_after_the_lease_has_passed() -> None:
    assert after(LEASE, beat(), T0 + 99_000).lease_until_ms == T0 + 114_000


def test_a_heartbeat_after_the_clock_went_back_has_none_before_it() -> None:
    lease = after(LEASE, beat(), T0 - 3_000)
    assert (lease.beat_at_ms, lease.previous_beat_at_ms) == (T0 - 3_000, 0)


def test_a_heartbeat_may_change_the_length_of_the_lease() -> None:
    lease = after(LEASE, beat(lease_ms=60_000))
    assert (lease.lease_ms, lease.lease_until_ms) == (60_000, T0 + 60_000)


@pytest.mark.parametrize("token", [3, 5, 0])
def test_a_stale_token_changes_nothing_and_gets_the_current_one(token: int) -> None:
    rejection = decide(LEASE, beat(token, total_completed=9), T0 + 5)
    assert rejection == token_mismatch("worker-1", 4)
    assert isinstance(rejection, Rejection)
    assert (rejection.code, rejection.fields) == ("token_mismatch", {"current_token": "4"})


def test_a_repeated_heartbeat_counts_once() -> None:
    once = after(LEASE, beat(completed_delta=2))
    assert isinstance(decide(once, beat(completed_delta=2), T0), Rejection)
    assert once.total_completed == 2


def test_totals_are_what_the_worker_says_and_never_go_down() -> None:
    lease = after(LEASE, beat(total_completed=7, total_failed=2))
    assert (lease.total_completed, lease.total_failed) == (7, 2)
    lease = after(lease, beat(5, total_completed=3, total_failed=4))
    assert (lease.total_completed, lease.total_failed) == (7, 4)


def test_deltas_are_added_when_there_is_no_total() -> None:
    lease = after(LEASE, beat(completed_delta=7, failed_delta=1))
    lease = after(lease, beat(5, completed_delta=2))
    assert (lease.total_completed, lease.total_failed) == (9, 1)


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


def test_a_new_session_does_not_renew_the_lease() -> None:
    lease = after(LEASE, SessionResumed(server_id="server-2"), T0 + 5)
    assert lease.lease_until_ms == LEASE.lease_until_ms


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
    lease_ms: int,
    spared_ms: int,
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
    lease_ms: int,
    lease_count: int,
    left_count: int,
    spared_ms: int,
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
    closed: int,
    still_open: int,
    is_mass: bool,
) -> None:
    assert is_mass_close(closed_count=closed, open_count=still_open) is is_mass


@pytest.mark.parametrize(("asked", "granted"), [(0, 15), (5, 10), (20, 20), (900, 600)])
def test_a_lease_is_what_was_asked_for_within_the_limits(asked: int, granted: int) -> None:
    assert granted_lease_ms(asked, default_ms=15, least_ms=10, most_ms=600) == granted


@given(st.integers(2, limits.LEASE_MS_MAX))
def test_a_lease_is_at_least_two_intervals(lease_ms: int) -> None:
    assert 0 < 2 * interval_ms(lease_ms) <= lease_ms


@given(
    st.lists(
        st.tuples(
            st.integers(-2, 2),
            st.integers(0, 20_000),
            st.sampled_from(["beat", "lost", "resumed", "failed"]),
        ),
        max_size=30,
    ),
)
def test_no_late_or_repeated_message_moves_a_lease_backwards(
    messages: list[tuple[int, int, str]],
) -> None:
    lease, now_ms = LEASE, T0
    for behind, wait_ms, kind in messages:
        now_ms += wait_ms
        events: dict[str, LeaseEvent] = {
            "beat": beat(lease.token - behind),
            "lost": SessionLost(),
            "resumed": SessionResumed(server_id="server-2"),
            "failed": CallFailed(),
        }
        result = decide(lease, events[kind], now_ms)
        assert isinstance(result, Rejection) == (kind == "beat" and behind != 0)
        if isinstance(result, Lease):
            assert result.lease_until_ms >= lease.lease_until_ms
            assert result.token == lease.token + (kind == "beat")
            lease = result


@pytest.mark.parametrize("changes", [{"token": 0}, {"lease_ms": 0}])
def test_no_impossible_lease_can_exist(changes: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        replace(LEASE, **changes)


def test_a_server_is_silent_that_has_not_touched_its_row_or_did_so_in_the_future() -> None:
    assert not is_silent(seen_at_ms=None, now_ms=T0)
    assert not is_silent(seen_at_ms=T0, now_ms=T0)
    assert not is_silent(seen_at_ms=T0 - limits.SIGHT_STALL_MS, now_ms=T0)
    assert is_silent(seen_at_ms=T0 - limits.SIGHT_STALL_MS - 1, now_ms=T0)
    assert is_silent(seen_at_ms=T0 + 1, now_ms=T0)
