"""Text for people: durations, ages, instants, and what strangers wrote made harmless."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from tenure.core.duration import duration_text
from tenure.core.instant import instant_text
from tenure.core.limits import INSTANT_MS_MAX

__all__ = [
    "age_text",
    "clean",
    "cut",
    "duration_text",
    "escaped",
    "escaped_json",
    "instant_text",
    "one_line",
    "parse_instant_ms",
    "short_id",
    "size_text",
]

# Control characters would move the cursor or recolour the terminal; direction marks would show
# a text in another order than it has. A tab or a new line would break a table.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


_SHORT_ID_LENGTH: Final = 8
_BREAKING: Final = re.compile(rf"[\n\t]|{_UNSAFE.pattern}")


def clean(text: str) -> str:
    """Replace what could disturb a terminal; new lines and tabs stay."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(text: str) -> str:
    r"""Return a text in one line, with escapes such as \n for what could begin another one."""
    return _BREAKING.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def escaped_json(text: str) -> str:
    """Return JSON that means the same and holds nothing that could disturb a terminal."""
    # Such characters stand in strings only.
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def one_line(text: str) -> str:
    """Return a text that fits a cell of a table."""
    return clean(" ".join(text.split()))


def cut(text: str, length: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


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


def age_text(instant: str | None, now_ms: int) -> str:
    """Return how long ago an instant was; clocks of two machines differ, so never below zero."""
    if not instant:
        return "-"
    return duration_text(max(now_ms - parse_instant_ms(instant), 0))


def short_id(full_id: str) -> str:
    """Return the end of an id; ids begin with the time, so those of one minute begin alike."""
    return full_id[-_SHORT_ID_LENGTH:]


def became_text(state: str) -> str:
    """Return a state as the rest of a sentence about what has it now."""
    is_end = state in {"FAILED", "SUCCEEDED", "COMPLETED"}
    return f"{'has' if is_end else 'is'} {state.lower()}"


def size_text(count: int) -> str:
    """Return a number of bytes with its unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004 (what the units are made of)
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
