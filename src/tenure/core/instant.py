"""Instants as they are written everywhere: RFC 3339 in UTC.

Pure arithmetic: the core uses no clock and no calendar of the machine.
"""

from __future__ import annotations

from typing import Final

_DAYS_PER_ERA: Final = 146_097
"""Days in 400 years, after which the calendar repeats."""
# From the first of March of the year 0, when an era begins, to the first of January 1970.
_EPOCH_DAYS: Final = 719_468


def instant_text(at_ms: int) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds.

    >>> instant_text(1_700_000_000_250)
    '2023-11-14T22:13:20.250Z'
    """
    seconds, milliseconds = divmod(at_ms, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    year, month, day = date_of(days)
    date = f"{year:04d}-{month:02d}-{day:02d}"
    return f"{date}T{hour:02d}:{minute:02d}:{second:02d}.{milliseconds:03d}Z"


def date_of(days: int) -> tuple[int, int, int]:
    """Return the year, month and day that begins this many days after the epoch.

    Years are counted from March on, so that the leap day is the last day of a year.
    """
    era, day_of_era = divmod(days + _EPOCH_DAYS, _DAYS_PER_ERA)
    leap_days = day_of_era // 1_460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leap_days) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    # Five months from March on always have 153 days.
    month_of_year = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_of_year + 2) // 5 + 1
    month = (month_of_year + 2) % 12 + 1
    return era * 400 + year_of_era + (month <= 2), month, day  # noqa: PLR2004 (February)
