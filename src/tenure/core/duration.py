"""Durations as people write and read them: ``30s``, ``1h30m``."""

import re
from typing import Final

from tenure.core.limits import DURATION_MS_MAX

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")
# The rounding error when a number becomes a whole one.
_HALF_MS: Final = 0.5
_TENTHS_BELOW_MS: Final = 10 * UNITS_MS["s"]
_PAIRS: Final = (("d", "h"), ("h", "m"), ("m", "s"))


def parse_duration_ms(text: str, *, minimum: int = 1) -> int:
    """Read ``30s``, ``500ms``, ``1h30m`` or ``1.5d``; raise ``ValueError`` for anything else."""
    compact = text.strip()
    if not _DURATION.fullmatch(compact):
        raise ValueError("must be a duration such as 500ms, 30s, 5m, 1h30m or 2d")
    parts = _PART.findall(compact)
    total_ms = sum(float(number) * UNITS_MS[unit] for number, unit in parts)
    return whole_ms(total_ms, minimum=minimum)


def whole_ms(milliseconds: float, *, minimum: int = 1) -> int:
    """Return whole milliseconds; raise ``ValueError`` for an invalid or too short duration."""
    # NaN compares false with everything, so it is refused too.
    if not minimum - _HALF_MS < milliseconds <= DURATION_MS_MAX:
        raise ValueError(f"must be between {minimum}ms and ten years")
    return round(milliseconds)


def duration_text(milliseconds: int) -> str:
    """Return a duration with its two largest units: ``450ms``, ``2.5s``, ``42s``, ``5m10s``."""
    if milliseconds < UNITS_MS["s"]:
        return f"{max(milliseconds, 0)}ms"
    if milliseconds < _TENTHS_BELOW_MS:
        return f"{milliseconds // 100 / 10:g}s"
    if milliseconds < UNITS_MS["m"]:
        return f"{milliseconds // UNITS_MS['s']}s"
    large, small = next(pair for pair in _PAIRS if milliseconds >= UNITS_MS[pair[0]])
    count, rest = divmod(milliseconds, UNITS_MS[large])
    rest //= UNITS_MS[small]
    return f"{count}{large}{rest}{small}" if rest else f"{count}{large}"
