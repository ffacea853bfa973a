"""Text for people: durations, ages, instants, and what strangers wrote made harmless."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from tenure.core.duration import UNITS_MS
from tenure.core.limits import INSTANT_MS_MAX

# Control characters would move the cursor or recolour the terminal; direction marks would show
# a text in another order than it has. A tab or a new line would break a table.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]",
)
_SECOND_MS: Final = UNITS_MS["s"]
_MINUTE_MS: Final = UNITS_MS["m"]
_TENTHS_BELOW_MS: Final = 10 * _SECOND_MS


def clean(text: str) -> str:
    """Replace what could disturb a terminal; new lines and tabs stay."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Return a text that fits a cell of a table."""
    return clean(" ".join(text.split()))


def duration_text(milliseconds: int) -> str:
    """Return a duration with its two largest units: ``450ms``, ``2.5s``, ``42s``, ``5m10s``."""
    if milliseconds < _SECOND_MS:
        return f"{max(milliseconds, 0)}ms"
    if milliseconds < _TENTHS_BELOW_MS:
        tenths = milliseconds // (_SECOND_MS // 10)
        return f"{tenths // 10}.{tenths % 10}s" if tenths % 10 else f"{tenths // 10}s"
    if milliseconds < _MINUTE_MS:
        return f"{milliseconds // _SECOND_MS}s"
    for large, small in (("d", "h"), ("h", "m"), ("m", "s")):
        if milliseconds >= UNITS_MS[large]:
            count, rest = divmod(milliseconds, UNITS_MS[large])
            rest //= UNITS_MS[small]
            return f"{count}{large}{rest}{small}" if rest else f"{count}{large}"
    raise AssertionError(milliseconds)


def parse_instant_ms(text: str) -> int:
    """Read an RFC 3339 instant with its zone; raise ``ValueError`` for anything else."""
    example = "2030-01-31T09:00:00Z"
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"must be an instant such as {example}") from None
    if parsed.tzinfo is None:
        raise ValueError(f"must name its zone, such as {example} or 2030-01-31T09:00:00+01:00")
    milliseconds = round(parsed.timestamp() * 1000)
    if not 0 <= milliseconds <= INSTANT_MS_MAX:
        raise ValueError("must lie between 1970 and 9999")
    return milliseconds


def instant_text(at_ms: int) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds."""
    seconds, rest = divmod(at_ms, 1000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:03d}Z"


def age_text(instant: str | None, now_ms: int) -> str:
    """Return how long ago an instant was; clocks of two machines differ, so never below zero."""
    if not instant:
        return "-"
    return duration_text(max(now_ms - parse_instant_ms(instant), 0))


def size_text(count: int) -> str:
    """Return a number of bytes with its unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004 (what the units are made of)
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
