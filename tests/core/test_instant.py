"""Instants as text, compared with the calendar of the standard library."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.instant import instant_text
from tenure.core.limits import INSTANT_MS_MAX


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_250, "2023-11-14T22:13:20.250Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (INSTANT_MS_MAX, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_is_written_in_utc_with_milliseconds(at_ms: int, text: str) -> None:
    assert instant_text(at_ms) == text


@given(st.integers(0, INSTANT_MS_MAX))
def test_every_instant_is_written_as_the_calendar_has_it(at_ms: int) -> None:
    seconds, milliseconds = divmod(at_ms, 1000)
    expected = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert instant_text(at_ms) == f"{expected}.{milliseconds:03d}Z"
