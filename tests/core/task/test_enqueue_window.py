"""Which enqueues are young enough not to be looked up, and when a marked one is decided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.core.limits import (
    ENQUEUE_AHEAD_MS,
    ENQUEUE_DECIDED_MS,
    ENQUEUE_STORED_MS,
    ENQUEUE_YOUNG_MS,
    INSTANT_MS_MAX,
    YOUNG_MARGIN_MS,
)
from tenure.core.task import enqueue_window
from tenure.core.task.enqueue_window import NOBODY, EnqueueWindow

NOW = 1_767_225_600_000
SURE_MS = ENQUEUE_YOUNG_MS - YOUNG_MARGIN_MS


def made(at_ms: int, *, version: str = "7", rest: str = "fff-bfff-ffffffffffff") -> str:
    at = f"{at_ms:012x}"
    return f"{at[:8]}-{at[8:]}-{version}{rest}"


def test_an_id_made_just_now_is_young_whichever_way_the_clocks_differ() -> None:
    young = EnqueueWindow.at(NOW)
    for off_ms in (-SURE_MS, -1, 0, 1, SURE_MS):
        for rest in ("000-8000-000000000000", "fff-bfff-ffffffffffff"):
            assert young.has(made(NOW + off_ms, rest=rest)), off_ms


def test_an_id_from_earlier_or_later_is_not() -> None:
    young = EnqueueWindow.at(NOW)
    for off_ms in (-ENQUEUE_YOUNG_MS - 1, -SURE_MS - 1, SURE_MS + 1, 10**9, -NOW):
        for rest in ("000-8000-000000000000", "fff-bfff-ffffffffffff"):
            assert not young.has(made(NOW + off_ms, rest=rest)), off_ms


def test_an_id_that_carries_no_time_is_never_young() -> None:
    for version in "0123456 89abcdef".replace(" ", ""):
        assert not EnqueueWindow.at(NOW).has(made(NOW, version=version))


def test_for_nobody_nothing_is_young() -> None:
    assert not NOBODY.has(made(NOW))
    assert not NOBODY.has(made(0))


def test_the_first_instants_have_no_time_before_them() -> None:
    assert EnqueueWindow.at(0).has(made(0))
    assert EnqueueWindow.at(-5_000).has(made(0)) is False


@given(
    now=st.integers(0, INSTANT_MS_MAX),
    off=st.integers(-5_000, 20_000),
    guess=st.integers(-400, 400),
)
def test_what_is_taken_for_young_is_undecided_long_enough(now: int, off: int, guess: int) -> None:
    """Whatever may be stored unseen was stored before a marked request is accepted."""
    task_id = made(max(0, now + off))
    is_exact = enqueue_window.is_exact(guessed_now_ms=now + guess, now_ms=now)
    if is_exact and EnqueueWindow.at(now + guess).has(task_id):
        assert abs(max(0, now + off) - now) <= ENQUEUE_YOUNG_MS
        assert enqueue_window.undecided_ms(task_id, now + ENQUEUE_STORED_MS) > 0


def test_a_marked_request_is_decided_two_seconds_after_its_id_was_made() -> None:
    assert ENQUEUE_DECIDED_MS == 2_000
    assert enqueue_window.undecided_ms(made(NOW), NOW) == ENQUEUE_DECIDED_MS
    assert enqueue_window.undecided_ms(made(NOW), NOW + 1_500) == 500
    assert enqueue_window.undecided_ms(made(NOW), NOW + ENQUEUE_DECIDED_MS) == 0
    assert enqueue_window.undecided_ms(made(NOW), NOW + 10**9) == 0


def test_an_id_from_ahead_is_waited_for_unless_its_clock_is_wrong() -> None:
    ahead = made(NOW + ENQUEUE_AHEAD_MS)
    assert enqueue_window.undecided_ms(ahead, NOW) == ENQUEUE_AHEAD_MS + ENQUEUE_DECIDED_MS
    assert enqueue_window.undecided_ms(made(NOW + ENQUEUE_AHEAD_MS + 1), NOW) == 0


def test_an_id_that_carries_no_time_is_decided() -> None:
    assert enqueue_window.undecided_ms(made(NOW, version="4"), NOW) == 0
