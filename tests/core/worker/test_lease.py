"""The lease of a worker: tokens, totals and suspicion."""

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
    decide,
    granted_lease_ms,
    interval_ms,
    token_mismatch,
)
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


def test_a_new_session_does_not_renew_the_lease() -> None:
    lease = after(LEASE, SessionResumed(server_id="server-2"), T0 + 5)
    assert lease.lease_until_ms == LEASE.lease_until_ms


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
    )
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
