"""Durations as people write them: ``"30s"``, ``"1h30m"``, a ``timedelta``, or seconds."""

import re
from datetime import timedelta
from typing import Final

from tenure.core.limits import DURATION_MS_MAX

Duration = str | float | timedelta
"""A text with units, a number of seconds, or a ``timedelta``."""

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration_ms(text: str) -> int:
    """Read ``30s``, ``500ms``, ``1h30m`` or ``1.5d``; raise ``ValueError`` for anything else."""
    compact = text.strip()
    if not _DURATION.fullmatch(compact):
        raise ValueError("must be a duration such as 500ms, 30s, 5m, 1h30m or 2d")
    parts = _PART.findall(compact)
    return _checked(sum(float(number) * UNITS_MS[unit] for number, unit in parts))


def duration_ms(value: Duration) -> int:
    """Return milliseconds; raise ``ValueError`` for what is no duration above zero."""
    if isinstance(value, str):
        return parse_duration_ms(value)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a text such as '30s', a timedelta, or a number of seconds")  # noqa: TRY004 (the caller names the parameter)
    return _checked(value * 1_000)


def _checked(milliseconds: float) -> int:
    # Not a number compares false with everything, so it is refused as well.
    if not 0.5 < milliseconds <= DURATION_MS_MAX:  # noqa: PLR2004 (the least that rounds to one)
        raise ValueError("must be between 1ms and ten years")
    return round(milliseconds)
