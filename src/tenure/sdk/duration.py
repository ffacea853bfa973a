"""Durations as users of the SDK give them: ``"30s"``, a ``timedelta``, or seconds."""

from __future__ import annotations

from datetime import timedelta

from tenure.core.duration import parse_duration_ms, whole_ms

Duration = str | float | timedelta
"""A text with units, a number of seconds, or a ``timedelta``."""


def duration_ms(value: Duration, name: str = "") -> int:
    """Return milliseconds; raise ``ValueError`` for what is no duration above zero.

    With the ``name`` of a parameter the error begins with it.
    """
    try:
        return _milliseconds(value)
    except ValueError as error:
        raise ValueError(f"{name} {error}".lstrip()) from None


def _milliseconds(value: object) -> int:
    if isinstance(value, str):
        return parse_duration_ms(value)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return whole_ms(value * 1_000)
    raise ValueError("must be a text such as '30s', a timedelta, or a number of seconds")
