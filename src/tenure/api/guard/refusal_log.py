"""Which refusals of callers without a valid key are logged: one a second for each address.

Without a key nobody must be able to fill a disk. Metrics count every call.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tenure.core.limits import REFUSAL_ADDRESSES_MAX, REFUSAL_LOG_MS
from tenure.engine.clock import Clock

# Used for every address that does not fit.
_OTHERS: Final = ""


class RefusalLog:
    """Keeps which addresses were logged last, and how many more refusals there were."""

    def __init__(self, clock: Clock) -> None:
        """Start without addresses."""
        self._clock = clock
        # When the last line was written, and how many were left out since; the oldest first.
        self._told: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of addresses."""
        return len(self._told)

    def take(self, address: str) -> int | None:
        """Return how many refusals of an address were not logged; None skips this one too."""
        now_ms = self._clock.monotonic_ms()
        if address not in self._told and not self._has_room(now_ms):
            address = _OTHERS
        told_at_ms, left_out = self._told.get(address, (now_ms - REFUSAL_LOG_MS, 0))
        if now_ms - told_at_ms < REFUSAL_LOG_MS:
            self._told[address] = (told_at_ms, left_out + 1)
            return None
        self._told[address] = (now_ms, 0)
        self._told.move_to_end(address)
        return left_out

    def _has_room(self, now_ms: int) -> bool:
        """Remove the oldest if all places are taken, unless its second has not ended."""
        while len(self._told) >= REFUSAL_ADDRESSES_MAX:
            oldest, (told_at_ms, _) = next(iter(self._told.items()))
            if now_ms - told_at_ms < REFUSAL_LOG_MS:
                return False
            del self._told[oldest]
        return True
