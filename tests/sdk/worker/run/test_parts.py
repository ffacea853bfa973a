"""The parts of runs in a worker: the time of the server, and runs that stay in memory."""

from __future__ import annotations

from tenure.sdk.worker.run.server_clock import ServerClock
from tenure.sdk.worker.run.warm_runs import WarmRuns


class Run:
    def __init__(self, *, has_thread: bool = False) -> None:
        self.is_aside = False
        self.has_thread = has_thread

    def put_aside(self) -> None:
        self.is_aside = True


def test_the_time_of_the_server_is_never_ahead_of_what_it_said() -> None:
    now = [100.0]
    clock = ServerClock(lambda: now[0])
    assert clock.now_ms == 0

    clock.heard(5_000)
    assert clock.now_ms == 5_000
    now[0] = 101.0
    # This message took 300 ms, and the first one none.
    clock.heard(5_700)
    assert 5_990 <= clock.now_ms <= 6_000
    assert 3.9 < clock.in_s(9_950) < 4.0
    assert clock.in_s(1) == 0


def test_a_server_whose_clock_was_set_back_is_followed_slowly() -> None:
    now = [0.0]
    clock = ServerClock(lambda: now[0])
    clock.heard(10_000)
    for minute in range(1, 61):
        now[0] = 60.0 * minute
        clock.heard(9_000 + 60_000 * minute)

    assert clock.now_ms == 9_000 + 3_600_000


def test_the_run_that_waits_for_the_longest_goes_first() -> None:
    warm: WarmRuns[Run] = WarmRuns(2)
    first, second, third = Run(), Run(), Run()
    warm.keep("1", first)
    warm.keep("2", second)
    assert warm.take("1") is first
    warm.keep("1", first)
    warm.keep("3", third)

    assert [each.is_aside for each in (first, second, third)] == [False, True, False]
    assert warm.take("2") is None
    assert len(warm) == 2
    warm.put_all_aside()
    assert [each.is_aside for each in (first, second, third)] == [True, True, True]
    assert len(warm) == 0


def test_only_some_of_the_runs_that_wait_keep_a_thread() -> None:
    warm: WarmRuns[Run] = WarmRuns(5, threads=2)
    plain = [Run(has_thread=True) for _ in range(3)]
    other = Run()
    warm.keep("other", other)
    for number, run in enumerate(plain):
        warm.keep(f"{number}", run)

    assert [each.is_aside for each in (other, *plain)] == [False, True, False, False]
    assert warm.take("1") is plain[1]
    warm.keep("0", plain[0])
    assert [each.is_aside for each in plain[1:]] == [False, False]


def test_nothing_is_kept_if_nothing_may_be() -> None:
    warm: WarmRuns[Run] = WarmRuns(0)
    run = Run()
    warm.keep("1", run)

    assert run.is_aside
    assert warm.take("1") is None
