"""Cron rules on a local clock: ``second minute hour day month weekday [year]``.

Nothing here knows a zone: instants are seconds of a local clock since 1970-01-01T00:00:00 on that
clock, which is never set. What happens when it is set is up to ``ticks``.
"""

from __future__ import annotations

import calendar
import functools
import re
from typing import Final, NamedTuple

import msgspec

from tenure.core import check
from tenure.core.instant import date_of
from tenure.core.limits import RULE_BYTES_MAX, RULE_YEAR_MAX, RULE_YEAR_MIN, RULES_REMEMBERED_MAX
from tenure.core.schedule import field
from tenure.core.schedule.field import Field
from tenure.errors import InvalidArgument

_DAY_S: Final = 86_400
_YEAR_MONTHS: Final = 12
_MONTH_DAYS_MAX: Final = 31
_DAYS_END: Final = calendar.timegm((RULE_YEAR_MAX + 1, 1, 1, 0, 0, 0)) // _DAY_S
# The last workday is one or two days before a last day that is a Saturday or Sunday.
_WORKDAY_BEFORE: Final = {6: 1, 0: 2}

_WORD: Final = re.compile(r"[^ \t]+")
_SHORT: Final = {
    "@YEARLY": "0 0 0 1 1 *",
    "@ANNUALLY": "0 0 0 1 1 *",
    "@MONTHLY": "0 0 0 1 * *",
    "@WEEKLY": "0 0 0 * * 0",
    "@DAILY": "0 0 0 * * *",
    "@MIDNIGHT": "0 0 0 * * *",
    "@HOURLY": "0 0 * * * *",
}
_WITHOUT_SECOND: Final = 5
_WITHOUT_YEAR: Final = 6
_SPECS: Final = (
    field.SECOND,
    field.MINUTE,
    field.HOUR,
    field.DAY,
    field.MONTH,
    field.WEEKDAY,
    field.YEAR,
)
_AT_ZERO: Final = Field(1)
_ALL_YEARS: Final = Field(
    sum(1 << year for year in range(RULE_YEAR_MIN, RULE_YEAR_MAX + 1)), is_star=True
)


class CronRule(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A rule that was read, as sets of numbers; see ``field`` for the bits.

    ``months`` has a bit for each month of all years, January 1970 first. If ``has_either_day``, a
    day matches if its day of month or its day of week does; else both have to. If ``is_hourly``,
    the hour is ``*``.
    """

    seconds: int
    minutes: int
    hours: int
    days: int
    weekdays: int
    months: int
    has_either_day: bool
    is_hourly: bool

    def first_from(self, local_s: int) -> int | None:
        """Return the first match at or after this second of the local clock."""
        day, second = divmod(max(local_s, 0), _DAY_S)
        found = self._day_from(day)
        if found == day:
            time = self._time_from(second)
            if time is not None:
                return day * _DAY_S + time
            found = self._day_from(day + 1)
        if found is None:
            return None
        return found * _DAY_S + self._first_time()

    def last_until(self, local_s: int) -> int | None:
        """Return the last match at or before this second of the local clock."""
        day, second = divmod(min(local_s, _DAYS_END * _DAY_S - 1), _DAY_S)
        found = self._day_until(day)
        if found == day:
            time = self._time_until(second)
            if time is not None:
                return day * _DAY_S + time
            found = self._day_until(day - 1)
        if found is None:
            return None
        return found * _DAY_S + self._last_time()

    def count(self, from_s: int, to_s: int) -> int:
        """Return how many matches there are from one second of the local clock to another."""
        first_day, first_second = divmod(max(from_s, 0), _DAY_S)
        last_day, last_second = divmod(min(to_s + 1, _DAYS_END * _DAY_S), _DAY_S)
        if (last_day, last_second) <= (first_day, first_second):
            return 0
        whole_days = self._count_days(first_day, last_day) * self._times_before(_DAY_S)
        last = self._count_days(last_day, last_day + 1) * self._times_before(last_second)
        first = self._count_days(first_day, first_day + 1) * self._times_before(first_second)
        return whole_days + last - first

    def _day_from(self, day: int) -> int | None:
        """Return the first matching day at or after this one."""
        if day >= _DAYS_END:
            return None
        index, number = _month_of(day)
        while (month := _low(self.months, index)) is not None:
            found = _low(self._days_of(month), number if month == index else 1)
            if found is not None:
                return _month(month).first_day + found - 1
            index, number = month + 1, 1
        return None

    def _day_until(self, day: int) -> int | None:
        """Return the last matching day at or before this one."""
        if day < 0:
            return None
        index, number = _month_of(day)
        while (month := _high(self.months, index)) is not None:
            found = _high(self._days_of(month), number if month == index else _MONTH_DAYS_MAX)
            if found is not None:
                return _month(month).first_day + found - 1
            index, number = month - 1, _MONTH_DAYS_MAX
        return None

    def _count_days(self, first: int, end: int) -> int:
        """Return how many days match, from the first on and before the end."""
        total = 0
        while first < end:
            index, number = _month_of(first)
            month = _month(index)
            next_day = min(end, month.first_day + month.length)
            if self.months >> index & 1:
                days = self._days_of(index) & _below(next_day - month.first_day + 1)
                total += (days >> number).bit_count()
            first = next_day
        return total

    def _days_of(self, index: int) -> int:
        month = _month(index)
        return _matching_days(
            self.days, self.weekdays, month.weekday, month.length, has_either=self.has_either_day
        )

    def _time_from(self, second_of_day: int) -> int | None:
        """Return the first matching second of a day at or after this one."""
        hour, minute, second = _clock(second_of_day)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                found = _low(self.seconds, second)
                if found is not None:
                    return second_of_day - second + found
            later = _low(self.minutes, minute + 1)
            if later is not None:
                return hour * 3600 + later * 60 + _lowest(self.seconds)
        later = _low(self.hours, hour + 1)
        if later is None:
            return None
        return later * 3600 + _lowest(self.minutes) * 60 + _lowest(self.seconds)

    def _time_until(self, second_of_day: int) -> int | None:
        """Return the last matching second of a day at or before this one."""
        hour, minute, second = _clock(second_of_day)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                found = _high(self.seconds, second)
                if found is not None:
                    return second_of_day - second + found
            earlier = _high(self.minutes, minute - 1)
            if earlier is not None:
                return hour * 3600 + earlier * 60 + _highest(self.seconds)
        earlier = _high(self.hours, hour - 1)
        if earlier is None:
            return None
        return earlier * 3600 + _highest(self.minutes) * 60 + _highest(self.seconds)

    def _first_time(self) -> int:
        return _lowest(self.hours) * 3600 + _lowest(self.minutes) * 60 + _lowest(self.seconds)

    def _last_time(self) -> int:
        return _highest(self.hours) * 3600 + _highest(self.minutes) * 60 + _highest(self.seconds)

    def _times_before(self, second_of_day: int) -> int:
        """Return how many seconds of a matching day match before this one."""
        hour, minute, second = _clock(second_of_day)
        per_minute = self.seconds.bit_count()
        per_hour = self.minutes.bit_count() * per_minute
        total = (self.hours & _below(hour)).bit_count() * per_hour
        if self.hours >> hour & 1:
            total += (self.minutes & _below(minute)).bit_count() * per_minute
            if self.minutes >> minute & 1:
                total += (self.seconds & _below(second)).bit_count()
        return total


class _Month(NamedTuple):
    """The first day of a month since the epoch, its day of week (Sunday is 0), and its length."""

    first_day: int
    weekday: int
    length: int


def parse(text: str) -> CronRule:
    """Read a rule of five, six or seven fields, or a name such as ``@daily``.

    >>> parse("30 2 * * MON").first_from(0) == (4 * 24 + 2) * 3600 + 30 * 60
    True

    Raises `InvalidArgument` with field ``rule``, which says in which field of the rule and at which
    character something is invalid, and what is allowed there. A rule without any match is invalid.
    """
    return _parse(check.text(text, "rule", bytes_max=RULE_BYTES_MAX))


@functools.lru_cache(maxsize=RULES_REMEMBERED_MAX)
def _parse(text: str) -> CronRule:
    seconds, minutes, hours, days, months, weekdays, years = _fields(text)
    rule = CronRule(
        seconds=seconds.mask,
        minutes=minutes.mask,
        hours=hours.mask,
        days=days.mask,
        weekdays=weekdays.mask,
        months=_months(months.mask, years.mask),
        has_either_day=not days.is_star and not weekdays.is_star,
        is_hourly=hours.is_star,
    )
    if rule.first_from(0) is None:
        raise InvalidArgument(
            f"rule never matches: no year from {RULE_YEAR_MIN} to {RULE_YEAR_MAX} has such a day",
            field="rule",
        )
    return rule


def _fields(text: str) -> list[Field]:
    """Read the seven fields; the second is 0 and the year is ``*`` if it has fewer."""
    words = _words(text)
    has_second = len(words) > _WITHOUT_SECOND
    specs = _SPECS if has_second else _SPECS[1:]
    read = [
        field.read_field(spec, word, character)
        for spec, (word, character) in zip(specs, words, strict=False)
    ]
    second = [] if has_second else [_AT_ZERO]
    year = [] if len(words) > _WITHOUT_YEAR else [_ALL_YEARS]
    return second + read + year


def _words(text: str) -> list[tuple[str, int]]:
    """Return the words of a rule in upper case, each with the character at which it begins."""
    if not text.isascii():
        # Some others become letters of ASCII in upper case.
        raise InvalidArgument("rule must be written in ASCII", field="rule")
    words = [(found.group(), found.start() + 1) for found in _WORD.finditer(text.upper())]
    if len(words) == 1 and words[0][0] in _SHORT:
        return [(word, 1) for word in _SHORT[words[0][0]].split()]
    if not _WITHOUT_SECOND <= len(words) <= len(_SPECS):
        raise InvalidArgument(
            "rule must have 5 fields (minute hour day month weekday), 6 with the second in front, "
            f"7 with a year at the end, or be one of {', '.join(_SHORT).lower()}",
            field="rule",
        )
    return words


def _months(months: int, years: int) -> int:
    """Return a bit for each month of all years."""
    chosen = 0
    for year in range(RULE_YEAR_MIN, RULE_YEAR_MAX + 1):
        if years >> year & 1:
            chosen |= (months >> 1) << (year - RULE_YEAR_MIN) * _YEAR_MONTHS
    return chosen


def _month_of(day: int) -> tuple[int, int]:
    """Return the month of a day since the epoch, January 1970 being 0, and its number there."""
    year, month, number = date_of(day)
    return (year - RULE_YEAR_MIN) * _YEAR_MONTHS + month - 1, number


@functools.lru_cache(maxsize=(RULE_YEAR_MAX - RULE_YEAR_MIN + 1) * _YEAR_MONTHS)
def _month(index: int) -> _Month:
    years, months = divmod(index, _YEAR_MONTHS)
    year, month = RULE_YEAR_MIN + years, months + 1
    monday_based, length = calendar.monthrange(year, month)
    first_day = calendar.timegm((year, month, 1, 0, 0, 0)) // _DAY_S
    return _Month(first_day, (monday_based + 1) % field.WEEK, length)


# There are 28 forms of a month for each rule with a day of its own.
@functools.lru_cache(maxsize=RULES_REMEMBERED_MAX)
def _matching_days(
    days: int, weekdays: int, first_weekday: int, length: int, *, has_either: bool
) -> int:
    """Return which days of a month match, its first one as bit 1."""
    by_number = days & _below(length + 1)
    if days >> field.LAST_DAY & 1:
        by_number |= 1 << length
    if days >> field.LAST_WORKDAY & 1:
        last_weekday = (first_weekday + length - 1) % field.WEEK
        by_number |= 1 << length - _WORKDAY_BEFORE.get(last_weekday, 0)
    by_weekday = 0
    for day in range(1, length + 1):
        weekday = (first_weekday + day - 1) % field.WEEK
        rows = 1 | 1 << (day + field.WEEK - 1) // field.WEEK * field.WEEK
        if day + field.WEEK > length:
            rows |= 1 << field.LAST_ROW * field.WEEK
        if weekdays & rows << weekday:
            by_weekday |= 1 << day
    return by_number | by_weekday if has_either else by_number & by_weekday


def _clock(second_of_day: int) -> tuple[int, int, int]:
    minutes, second = divmod(second_of_day, 60)
    hour, minute = divmod(minutes, 60)
    return hour, minute, second


def _below(bit: int) -> int:
    """Return the mask of all bits below this one."""
    return (1 << bit) - 1


def _low(mask: int, bit: int) -> int | None:
    """Return the first bit that is set at or above this one."""
    rest = mask >> bit
    return bit + _lowest(rest) if rest else None


def _high(mask: int, bit: int) -> int | None:
    """Return the last bit that is set at or below this one; there is none below bit 0."""
    rest = mask & _below(bit + 1)
    return _highest(rest) if rest else None


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _highest(mask: int) -> int:
    return mask.bit_length() - 1
