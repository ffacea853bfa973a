"""Instants and spans of the wire as users of the SDK get them: ``datetime`` and ``timedelta``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def datetime_of(at_ms: int) -> datetime | None:
    """Return an instant in UTC; 0 has not happened."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC) if at_ms else None


def timedelta_of(span_ms: int) -> timedelta | None:
    """Return a duration; 0 is not set."""
    return timedelta(milliseconds=span_ms) if span_ms else None
