import asyncio
from collections.abc import Iterator

import pytest

from tenure.testing.clock import START_AT_MS, ManualClock
from tests.sim.clock import LoopClock
from tests.sim.loop import SimulatedLoop


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.close()


def pass_time(loop: SimulatedLoop, *, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(start_at_ms=1_000)
    assert clock.now_ms() == 1_000
    clock.advance(250)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_250, 250)


def test_a_manual_clock_jumps_both_ways_and_monotonic_time_does_not_notice() -> None:
    clock = ManualClock(start_at_ms=1_000)
    clock.jump(500)
    assert clock.now_ms() == 1_500
    clock.jump(-900)
    assert (clock.now_ms(), clock.monotonic_ms()) == (600, 0)


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match="use jump"):
        ManualClock().advance(-1)


def test_clocks_start_at_a_realistic_instant(loop: SimulatedLoop) -> None:
    assert ManualClock().now_ms() == LoopClock(loop).now_ms() == START_AT_MS


def test_a_loop_clock_follows_the_loop(loop: SimulatedLoop) -> None:
    clock = LoopClock(loop, start_at_ms=1_000)
    pass_time(loop, seconds=2.5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (3_500, 2_500)


def test_a_loop_clock_loses_no_millisecond_to_sums_of_floats(loop: SimulatedLoop) -> None:
    clock = LoopClock(loop, start_at_ms=0)
    for step in range(1, 2_001):
        pass_time(loop, seconds=0.001 * (step % 7))
        assert clock.now_ms() == clock.monotonic_ms() == sum(n % 7 for n in range(1, step + 1))


def test_a_part_of_a_millisecond_has_not_passed_yet(loop: SimulatedLoop) -> None:
    clock = LoopClock(loop, start_at_ms=0)
    pass_time(loop, seconds=0.0019)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1, 1)


def test_a_loop_clock_jumps_both_ways_and_monotonic_time_does_not_notice(
    loop: SimulatedLoop,
) -> None:
    clock = LoopClock(loop, start_at_ms=10_000)
    pass_time(loop, seconds=1)
    clock.jump(-5_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (6_000, 1_000)
    clock.jump(60_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (66_000, 1_000)


def test_parties_drift_apart_but_agree_on_store_time(loop: SimulatedLoop) -> None:
    fast, slow = LoopClock(loop, drift=1.01), LoopClock(loop, drift=0.99)
    pass_time(loop, seconds=100)
    assert (fast.monotonic_ms(), slow.monotonic_ms()) == (101_000, 99_000)
    assert fast.now_ms() == slow.now_ms()


@pytest.mark.parametrize("drift", [0, -1])
def test_a_clock_that_stands_or_runs_backwards_is_refused(
    loop: SimulatedLoop, drift: float
) -> None:
    with pytest.raises(ValueError, match="cannot run"):
        LoopClock(loop, drift=drift)


def test_a_pause_stops_monotonic_time_and_not_store_time(loop: SimulatedLoop) -> None:
    clock = LoopClock(loop, start_at_ms=0, drift=2.0)
    pass_time(loop, seconds=1)
    clock.pause()
    pass_time(loop, seconds=10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (11_000, 2_000)
    clock.resume()
    pass_time(loop, seconds=1)
    assert (clock.now_ms(), clock.monotonic_ms()) == (12_000, 4_000)


def test_pausing_or_resuming_twice_changes_nothing(loop: SimulatedLoop) -> None:
    clock = LoopClock(loop)
    pass_time(loop, seconds=1)
    clock.resume()
    assert clock.monotonic_ms() == 1_000
    clock.pause()
    pass_time(loop, seconds=1)
    clock.pause()
    assert clock.monotonic_ms() == 1_000


def test_monotonic_time_starts_at_zero_for_a_party_that_joins_late(loop: SimulatedLoop) -> None:
    pass_time(loop, seconds=5)
    clock = LoopClock(loop, start_at_ms=0)
    assert (clock.now_ms(), clock.monotonic_ms()) == (5_000, 0)
