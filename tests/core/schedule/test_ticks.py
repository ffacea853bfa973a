"""The instants of rules and intervals, from either side."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.limits import DURATION_MS_MAX, TICKS_END_MS
from tenure.core.schedule.ticks import Ticks, between, count, newest, of_cron, of_interval
from tenure.errors import InvalidArgument


def ms_of(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def day_of(ticks: Ticks, day: str) -> list[str]:
    """Return the times of the ticks of a day of UTC."""
    after_ms = ms_of(day) - 1
    until_ms = after_ms + 86_400_000
    found = between(ticks, after_ms, until_ms, 100)
    assert newest(ticks, after_ms, until_ms, 100) == found
    assert count(ticks, after_ms, until_ms, 100) == len(found)
    return [datetime.fromtimestamp(tick / 1_000, UTC).strftime("%H:%M:%S") for tick in found]


@pytest.mark.parametrize(
    ("rule", "zone", "day", "expected"),
    [
        # In a gap: at its end, and several become one.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00:00"]),
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00:00"]),
        ("0 3 * * *", "Europe/Berlin", "2026-03-29", ["01:00:00"]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-29", ["01:00:00"]),
        ("30 2,3 * * *", "Europe/Berlin", "2026-03-29", ["01:00:00", "01:30:00"]),
        ("0 30 2 * * *", "America/New_York", "2026-03-08", ["07:00:00"]),
        ("30 0 * * *", "America/Santiago", "2026-09-06", ["04:00:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03", ["15:30:00"]),
        ("30 2 * * *", "Australia/Lord_Howe", "2026-10-03", ["15:30:00"]),
        # A day that a zone skipped: both days at one noon are two ticks.
        ("0 12 * * *", "Pacific/Apia", "2011-12-30", ["10:00:00", "22:00:00"]),
        # In a repeated hour: at the first.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["00:30:00"]),
        ("0 30 2 * * *", "Europe/Berlin", "2026-10-25", ["00:30:00"]),
        ("0 */2 * * *", "Europe/Berlin", "2026-10-24", [f"{h:02d}:00:00" for h in range(0, 24, 2)]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-10-25", ["00:00:00", "02:00:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04", ["14:45:00"]),
        ("30 23 * * *", "America/Santiago", "2026-04-05", ["02:30:00"]),
        # The hour is *: whenever the clock shows a match.
        ("30 * 25 10 *", "Europe/Berlin", "2026-10-25", [f"{h:02d}:30:00" for h in range(23)]),
        ("30 2-3 * * *", "Europe/Berlin", "2026-10-25", ["00:30:00", "02:30:00"]),
        ("30 * 29 3 *", "Europe/Berlin", "2026-03-29", [f"{h:02d}:30:00" for h in range(22)]),
        (
            "15 * 4 10 *",
            "Australia/Lord_Howe",
            "2026-10-03",
            ["13:45:00", "14:45:00", *(f"{h}:15:00" for h in range(16, 24))],
        ),
        # The leap day, the end of a year, and the last year.
        ("0 0 29 2 *", "UTC", "2028-02-29", ["00:00:00"]),
        ("0 0 29 2 *", "Asia/Kolkata", "2096-02-28", ["18:30:00"]),
        ("59 59 23 31 12 *", "America/New_York", "2027-01-01", ["04:59:59"]),
        ("0 0 0 1 1 * 2099", "Europe/Berlin", "2098-12-31", ["23:00:00"]),
        ("59 59 23 31 12 *", "UTC", "2099-12-31", ["23:59:59"]),
        ("59 59 23 31 12 *", "America/New_York", "2099-12-31", []),
    ],
)
def test_ticks_come_when_the_local_clock_says(
    rule: str, zone: str, day: str, expected: list[str]
) -> None:
    assert day_of(of_cron(rule, zone), day) == expected


def test_a_tick_of_a_far_year_is_found_from_either_side() -> None:
    ticks = of_cron("0 0 0 29 2 * 2096", "Africa/Casablanca")
    only = ms_of("2096-02-29")
    assert ticks.after(-(10**15)) == only
    assert ticks.after(only - 1) == only
    assert ticks.after(only) is None
    assert ticks.until(10**15) == only
    assert ticks.until(only) == only
    assert ticks.until(only - 1) is None
    assert ticks.count(-(10**15), 10**15, 5) == 1


def test_ticks_are_between_1970_and_2100() -> None:
    ticks = of_cron("* * * * * *", "Pacific/Auckland")
    # The local clock is ahead: its year 2099 ends before that of UTC, its year 1970 began before.
    assert ticks.after(-1) == 0
    assert ticks.until(-1) is None
    assert ticks.after(ms_of("2099-12-31T10:59:58")) == ms_of("2099-12-31T10:59:59")
    assert ticks.after(ms_of("2099-12-31T10:59:59")) is None
    assert of_cron("* * * * * *").until(10**15) == TICKS_END_MS - 1_000
    assert of_cron("* * * * * *").after(TICKS_END_MS) is None


def test_bounds_are_after_and_until_at_each_millisecond() -> None:
    ticks = of_cron("* * * * *")
    assert ticks.after(59_999) == 60_000
    assert ticks.after(60_000) == 120_000
    assert ticks.until(60_000) == 60_000
    assert ticks.until(59_999) == 0
    assert between(ticks, 0, 180_000, 10) == [60_000, 120_000, 180_000]
    assert newest(ticks, 0, 180_000, 10) == [60_000, 120_000, 180_000]


def test_the_oldest_or_the_newest_are_taken_and_counting_ends() -> None:
    for ticks in (of_cron("* * * * *", "Europe/Berlin"), of_interval(60_000)):
        assert between(ticks, 0, 600_000, 2) == [60_000, 120_000]
        assert newest(ticks, 0, 600_000, 2) == [540_000, 600_000]
        assert between(ticks, 0, 600_000, 0) == []
        assert newest(ticks, 0, 600_000, 0) == []
        assert count(ticks, 0, 600_000, 100) == 10
        assert count(ticks, 0, 600_000, 3) == 3
        assert count(ticks, 600_000, 0, 3) == 0


class Twice:
    """Ticks of another kind: only at 1,000 and at 5,000."""

    def after(self, at_ms: int) -> int | None:
        return next((tick for tick in (1_000, 5_000) if tick > at_ms), None)

    def until(self, at_ms: int) -> int | None:
        return next((tick for tick in (5_000, 1_000) if tick <= at_ms), None)


def test_ticks_of_any_kind_are_counted() -> None:
    assert count(Twice(), 0, 10_000, 100) == 2
    assert count(Twice(), 1_000, 10_000, 100) == 1
    assert count(Twice(), 0, 10_000, 1) == 1
    assert newest(Twice(), 0, 10_000, 100) == [1_000, 5_000]


def test_ticks_of_a_rule_are_made_once() -> None:
    assert of_cron("1 2 3 4 *", "Europe/Berlin") is of_cron("1 2 3 4 *", "Europe/Berlin")


def test_a_rule_whose_only_tick_is_after_2099_in_utc_is_refused() -> None:
    rule = "0 30 23 31 12 * 2099"
    assert of_cron(rule, "UTC").after(0) == ms_of("2099-12-31T23:30:00")
    with pytest.raises(InvalidArgument, match="rule has no tick before 2100 in UTC") as caught:
        of_cron(rule, "America/New_York")
    assert caught.value.fields == {"field": "rule"}


def test_a_rule_and_a_zone_are_checked() -> None:
    for rule, zone, field in (("* * * *", "UTC", "rule"), ("* * * * *", "Mars/Olympus", "zone")):
        with pytest.raises(InvalidArgument) as caught:
            of_cron(rule, zone)
        assert caught.value.fields == {"field": field}


@given(
    every_ms=st.integers(1_000, 10**6) | st.integers(1_000, DURATION_MS_MAX),
    share=st.floats(0, 1, exclude_max=True),
    at_ms=st.integers(-(10**12), TICKS_END_MS + 10**12),
)
def test_an_interval_is_aligned_to_the_epoch(every_ms: int, share: float, at_ms: int) -> None:
    offset_ms = int(share * every_ms)
    ticks = of_interval(every_ms, offset_ms)
    after, until = ticks.after(at_ms), ticks.until(at_ms)
    for tick in (after, until):
        if tick is not None:
            assert tick % every_ms == offset_ms
            assert 0 <= tick < TICKS_END_MS
    assert after is None or at_ms < after <= max(at_ms + every_ms, offset_ms)
    assert until is None or until <= at_ms
    assert (after is not None) or at_ms + every_ms >= TICKS_END_MS
    assert (until is None) == (at_ms < offset_ms)
    if after is not None and until is not None:
        assert after == until + every_ms


@given(
    every_ms=st.integers(1_000, 5_000),
    offset_ms=st.integers(0, 999),
    after_ms=st.integers(-20_000, 20_000),
    length_ms=st.integers(-5_000, 40_000),
)
def test_ticks_of_an_interval_are_counted_as_they_are_found(
    every_ms: int, offset_ms: int, after_ms: int, length_ms: int
) -> None:
    ticks = of_interval(every_ms, offset_ms)
    until_ms = after_ms + length_ms
    found = between(ticks, after_ms, until_ms, 1_000)
    assert newest(ticks, after_ms, until_ms, 1_000) == found
    assert count(ticks, after_ms, until_ms, 1_000) == len(found)


def test_the_last_ticks_of_an_interval_are_before_2100() -> None:
    ticks = of_interval(7_000, 3_000)
    last = ticks.until(10**15)
    assert last is not None
    assert TICKS_END_MS - 7_000 <= last < TICKS_END_MS
    assert ticks.after(last) is None
    assert ticks.count(last - 7_000, 10**15, 10) == 1


@pytest.mark.parametrize(
    ("every_ms", "offset_ms", "field"),
    [
        (999, 0, "every"),
        (DURATION_MS_MAX + 1, 0, "every"),
        (True, 0, "every"),
        (60_000, -1, "offset"),
        (60_000, 60_000, "offset"),
    ],
)
def test_an_interval_is_at_least_a_second_with_an_offset_below_it(
    every_ms: int, offset_ms: int, field: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"^{field} must be a whole number") as caught:
        of_interval(every_ms, offset_ms)
    assert caught.value.fields == {"field": field}
