"""Durations as users of the SDK give them: ``"30s"``, a ``timedelta``, or seconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tenure.core.duration import parse_duration_ms, whole_ms

Duration = str | float | timedelta
"""A text with units, a number of seconds, or a ``timedelta``."""


_DELAY_S_MIN: Final = 0.001


def duration_ms(value: Duration, name: str = "", *, minimum: int = 1) -> int:
    """Return milliseconds; raise ``ValueError`` for less than ``minimum`` and for other values.

    The error begins with ``name``, the name of the parameter.
    """
    try:
        return _milliseconds(value, minimum)
    except ValueError as error:
        raise ValueError(f"{name} {error}".lstrip()) from None


def delay_ms(value: Duration, name: str = "") -> int:
    """Return milliseconds; a negative delay, until an instant that has passed, is 0."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, int | float) and seconds < _DELAY_S_MIN and type(seconds) is not bool:
        # A delay of less than a millisecond is rounded up: 0 would start the task too early.
        return 1 if seconds > 0 else 0
    return duration_ms(value, name, minimum=0)


def _milliseconds(value: object, minimum: int) -> int:
    if isinstance(value, str):
        return parse_duration_ms(value, minimum=minimum)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return whole_ms(value * 1_000, minimum=minimum)
    raise ValueError("must be a text such as '30s', a timedelta, or a number of seconds")
