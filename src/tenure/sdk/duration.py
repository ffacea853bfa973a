"""Durations as users of the SDK give them: ``"30s"``, a ``timedelta``, or seconds."""

from __future__ import annotations

from datetime import timedelta

from tenure.core.duration import parse_duration_ms, whole_ms

Duration = str | float | timedelta
"""A text with units, a number of seconds, or a ``timedelta``."""


def duration_ms(value: Duration) -> int:
    """Return milliseconds; raise ``ValueError`` for what is no duration above zero."""
    if isinstance(value, str):
        return parse_duration_ms(value)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a text such as '30s', a timedelta, or a number of seconds")  # noqa: TRY004 (the caller names the parameter)
    return whole_ms(value * 1_000)
