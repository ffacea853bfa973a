"""Cron rules as sets, and their ticks found by walking: what the core has to agree with.

Nothing here uses the core. A model is made of the sets that a rule means; its text is made beside
them, never read.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY_S = 86_400
DayTest = Callable[[date], bool]


class Model(NamedTuple):
    """What a rule means; a day field that is ``*`` is None."""

    text: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int] | None
    months: frozenset[int]
    years: frozenset[int]
    day_of_month: DayTest | None
    day_of_week: DayTest | None

    def has_day(self, day: date) -> bool:
        if day.month not in self.months or day.year not in self.years:
            return False
        tests = [test for test in (self.day_of_month, self.day_of_week) if test is not None]
        return any(test(day) for test in tests) if tests else True

    def has_minute(self, local: datetime) -> bool:
        return (
            local.minute in self.minutes
            and (self.hours is None or local.hour in self.hours)
            and self.has_day(local.date())
        )

    def has(self, local: datetime) -> bool:
        return local.second in self.seconds and self.has_minute(local)


def zone_of(name: str) -> ZoneInfo:
    """Return a zone with the data of the package, which may be newer than the machine's."""
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def local_at(zone: ZoneInfo, at_s: int) -> datetime:
    """Return what the local clock shows."""
    return datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)


def walk(model: Model, zone: ZoneInfo, from_s: int, to_s: int) -> Iterator[int]:
    """Find the ticks by looking at each second of UTC, from one to before another."""
    shown = _shown_before(zone, from_s)
    for at_s in range(from_s, to_s):
        local = local_at(zone, at_s)
        if model.hours is None:
            is_tick = model.has(local)
        else:
            is_tick = any(model.has(each) for each in _seconds(shown, local))
            shown = max(shown, local)
        if is_tick:
            yield at_s


def walk_minutes(model: Model, zone: ZoneInfo, from_s: int, to_s: int) -> Iterator[int]:
    """Find the ticks as `walk` does, but ask the zone once for each minute.

    Clocks change at whole minutes, since 1972.
    """
    assert from_s % 60 == 0
    assert to_s % 60 == 0
    shown = _shown_before(zone, from_s)
    for minute_s in range(from_s, to_s, 60):
        local = local_at(zone, minute_s)
        new = local - shown
        if model.hours is None or new == timedelta(seconds=1):
            if model.has_minute(local):
                yield from (minute_s + second for second in sorted(model.seconds))
        elif new > timedelta():
            yield from walk(model, zone, minute_s, minute_s + 60)
        shown = max(shown, local + timedelta(seconds=59))


def may_tick(model: Model, zone: ZoneInfo, day: int) -> bool:
    """Tell if a local day of the rule touches a day of UTC, counted from 1970."""
    first = local_at(zone, day * DAY_S - 1).date()
    last = local_at(zone, (day + 1) * DAY_S - 1).date()
    days = range(min(first, last).toordinal(), max(first, last).toordinal() + 1)
    return any(model.has_day(date.fromordinal(each)) for each in days)


def _shown_before(zone: ZoneInfo, at_s: int) -> datetime:
    """Return the latest local time that was shown before: clocks are set at whole minutes."""
    first_s = at_s - 26 * 3600
    before = (*range(first_s, at_s, 1800), at_s - 1)
    if len({datetime.fromtimestamp(each, zone).utcoffset() for each in before}) == 1:
        return local_at(zone, at_s - 1)
    first_end = first_s - first_s % 60 + 59
    return max(local_at(zone, each) for each in (*range(first_end, at_s, 60), at_s - 1))


def _seconds(shown: datetime, local: datetime) -> Iterator[datetime]:
    """All local seconds behind what was shown, up to what is shown now."""
    second = timedelta(seconds=1)
    while shown < local:
        shown += second
        yield shown


def changes(zone: ZoneInfo, first_year: int, last_year: int) -> list[int]:
    """Return the instants at which a zone changes its offset, found by looking at each hour."""
    start = int(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(last_year + 1, 1, 1, tzinfo=UTC).timestamp())
    found = []
    before = datetime.fromtimestamp(start, zone).utcoffset()
    # Each half hour: in these years all zones change at one.
    for at_s in range(start, end, 1800):
        offset = datetime.fromtimestamp(at_s, zone).utcoffset()
        if offset != before:
            found.append(at_s)
            before = offset
    return found


def days_in(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]
