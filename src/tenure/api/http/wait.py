"""The query parameter ``wait``: how long a request may wait for what it asks about."""

from __future__ import annotations

import re
from typing import Final

from tenure.core.limits import LONG_POLL_MS
from tenure.errors import InvalidArgument

_WAIT: Final = re.compile(r"([0-9]{1,7})(ms|s|m)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000}


def whole_wait_ms(wait: str, wait_ms: int = 0) -> int:
    """Return how long to wait, given as a text or in milliseconds; 0 means not at all."""
    if not wait:
        return wait_ms
    found = _WAIT.fullmatch(wait)
    whole_ms = int(found[1]) * _UNITS_MS[found[2]] if found else LONG_POLL_MS + 1
    if wait_ms or whole_ms > LONG_POLL_MS:
        message = f"wait must be like 30s, at most {LONG_POLL_MS // 1000}s, without waitMs"
        raise InvalidArgument(message, field="wait")
    return whole_ms
