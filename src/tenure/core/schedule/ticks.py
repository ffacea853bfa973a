"""Ticks: the instants at which a schedule is due, of a cron rule in a zone or of an interval.

In a zone that changes its clock, a rule whose hour is ``*`` has a tick whenever the local clock
shows a match, also in a repeated hour. Any other rule has one tick for each matching local time: at
the first of two, and at the end of a gap for all that are in it.
"""

from __future__ import annotations

import functools
from typing import Final, Protocol

from tenure.core import check
from tenure.core.limits import DURATION_MS_MAX, INTERVAL_MS_MIN, RULES_REMEMBERED_MAX, TICKS_END_MS
from tenure.core.schedule.cron import CronRule, parse
from tenure.core.schedule.zone import UTC_NAME, Span, Zone, find_zone
from tenure.errors import InvalidArgument

_END_S: Final = TICKS_END_MS // 1_000
# No clock changes by more: some zones have skipped or repeated a day.
_CHANGE_S_MAX: Final = 2 * 86_400


class Ticks(Protocol):
    """The instants of a rule, from 1970 and before 2100, found from either side."""

    def after(self, at_ms: int) -> int | None:
        """Return the first tick after an instant, or ``None`` if there is none before 2100."""

    def until(self, at_ms: int) -> int | None:
        """Return the newest tick at or before an instant, or ``None`` if there is none since 1970.

        It steps backwards: the cost does not depend on how many ticks there have been.
        """


class CronTicks:
    """The ticks of a cron rule in a zone, at whole seconds."""

    def __init__(self, rule: CronRule, zone: Zone) -> None:
        self.rule = rule
        self.zone = zone

    def after(self, at_ms: int) -> int | None:
        """Return the first tick after an instant; see `Ticks`."""
        at_s = max(at_ms // 1_000 + 1, 0)
        while at_s < _END_S:
            span = self.zone.span(at_s)
            match = self.rule.first_from(self._local(span, at_s))
            if match is not None and match < span.end_s + span.offset_s:
                return max(match - span.offset_s, span.start_s) * 1_000
            later_s = _END_S if match is None else match - span.offset_s - _CHANGE_S_MAX
            # What is shortly before a change may come again behind it.
            is_safe = at_s < span.end_s - _CHANGE_S_MAX
            at_s = max(span.end_s, later_s) if is_safe else span.end_s
        return None

    def until(self, at_ms: int) -> int | None:
        """Return the newest tick at or before an instant; see `Ticks`."""
        at_s = min(at_ms // 1_000, _END_S - 1)
        while at_s >= 0:
            span = self.zone.span(at_s)
            match = self.rule.last_until(at_s + span.offset_s)
            if match is not None and match >= self._local(span, span.start_s):
                return max(match - span.offset_s, span.start_s) * 1_000
            earlier_s = -1 if match is None else match - span.offset_s + _CHANGE_S_MAX
            is_safe = at_s >= span.start_s + _CHANGE_S_MAX
            at_s = min(span.start_s - 1, earlier_s) if is_safe else span.start_s - 1
        return None

    def count(self, after_ms: int, until_ms: int, most: int) -> int:
        """Return the number of ticks after one instant and up to another, at most so many."""
        at_s = max(after_ms // 1_000 + 1, 0)
        until_s = min(until_ms // 1_000, _END_S - 1)
        total = 0
        while at_s <= until_s and total < most:
            span = self.zone.span(at_s)
            last_s = min(until_s, span.end_s - 1)
            first = self._local(span, at_s)
            if at_s == span.start_s:
                # All that match in a gap, and the local time with which it ends, are one tick.
                gap_end = span.start_s + span.offset_s
                total += self.rule.count(first, gap_end) > 0
                first = gap_end + 1 if first <= gap_end else first
            total += self.rule.count(first, last_s + span.offset_s)
            at_s = last_s + 1
        return min(total, most)

    def _local(self, span: Span, at_s: int) -> int:
        """Return the first second of the local clock that is due at or after an instant of a span.

        At its start that is where the local clock was before, if each local time has one tick: it
        is behind that in a gap, and has been there before in a repeated hour.
        """
        local = at_s + span.offset_s
        if self.rule.is_hourly:
            return local
        before = span.start_s + span.before_s
        return before if at_s == span.start_s else max(local, before)


class IntervalTicks:
    """The ticks of an interval: all multiples of it since the epoch, later by an offset."""

    def __init__(self, every_ms: int, offset_ms: int) -> None:
        self.every_ms = every_ms
        self.offset_ms = offset_ms

    def after(self, at_ms: int) -> int | None:
        """Return the first tick after an instant; see `Ticks`."""
        found = self._tick(max(self._number(at_ms) + 1, 0))
        return found if found < TICKS_END_MS else None

    def until(self, at_ms: int) -> int | None:
        """Return the newest tick at or before an instant; see `Ticks`."""
        number = self._number(min(at_ms, TICKS_END_MS - 1))
        return self._tick(number) if number >= 0 else None

    def count(self, after_ms: int, until_ms: int, most: int) -> int:
        """Return the number of ticks after one instant and up to another, at most so many."""
        last = self._number(min(until_ms, TICKS_END_MS - 1))
        return min(max(last - max(self._number(after_ms), -1), 0), most)

    def _number(self, at_ms: int) -> int:
        """Return the number of the newest tick at or before an instant; the first is 0."""
        return (at_ms - self.offset_ms) // self.every_ms

    def _tick(self, number: int) -> int:
        return number * self.every_ms + self.offset_ms


def of_cron(text: str, zone: str = UTC_NAME) -> CronTicks:
    """Return the ticks of a cron rule in a zone.

    >>> of_cron("30 2 * * *", "Europe/Berlin").after(1_774_738_800_000)  # into the gap of 2026
    1774746000000

    Raises `InvalidArgument` with field ``rule`` or ``zone``. A rule without a tick is invalid.
    """
    parse(text)  # Only what is valid, and thus short, is remembered.
    return _of_cron(text, find_zone(zone).name)


@functools.lru_cache(maxsize=RULES_REMEMBERED_MAX)
def _of_cron(text: str, zone: str) -> CronTicks:
    ticks = CronTicks(parse(text), find_zone(zone))
    if ticks.after(-1) is None:
        raise InvalidArgument("rule has no tick before 2100 in UTC", field="rule")
    return ticks


@functools.lru_cache(maxsize=RULES_REMEMBERED_MAX, typed=True)
def of_interval(every_ms: int, offset_ms: int = 0) -> IntervalTicks:
    """Return the ticks of an interval, such as 300,000 with 60,000: one minute past each fifth.

    Raises `InvalidArgument` with field ``every`` or ``offset``.
    """
    every = check.integer(every_ms, "every", INTERVAL_MS_MIN, DURATION_MS_MAX)
    return IntervalTicks(every, check.integer(offset_ms, "offset", 0, every - 1))


def count(ticks: Ticks, after_ms: int, until_ms: int, most: int) -> int:
    """Return the number of ticks in ``(after, until]``, or ``most`` if there are more.

    Those of a rule and of an interval are computed, not walked.
    """
    if isinstance(ticks, CronTicks | IntervalTicks):
        return ticks.count(after_ms, until_ms, most)
    return len(between(ticks, after_ms, until_ms, most))


def between(ticks: Ticks, after_ms: int, until_ms: int, most: int) -> list[int]:
    """Return the oldest ticks in ``(after, until]``, oldest first, at most so many."""
    found: list[int] = []
    at_ms = after_ms
    while len(found) < most:
        tick = ticks.after(at_ms)
        if tick is None or tick > until_ms:
            break
        found.append(tick)
        at_ms = tick
    return found


def newest(ticks: Ticks, after_ms: int, until_ms: int, most: int) -> list[int]:
    """Return the newest ticks in ``(after, until]``, oldest first, at most so many."""
    found: list[int] = []
    at_ms = until_ms
    while len(found) < most:
        tick = ticks.until(at_ms)
        if tick is None or tick <= after_ms:
            break
        found.append(tick)
        at_ms = tick - 1
    return found[::-1]
