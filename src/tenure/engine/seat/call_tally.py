"""How the calls of this server to served workers went, in numbers that only increase."""

from __future__ import annotations

import bisect
from typing import Final

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


class CallTally:
    """Calls by result, how long they took, and the ticks that came late."""

    def __init__(self) -> None:
        """Start with zeros."""
        self.results = {"ok": 0, "failed": 0}
        self.late_count = 0
        self.sum_ms = 0
        # Of each bound the calls up to it and above the bound before; then those above the last.
        self.counts = [0] * (len(BOUNDS_MS) + 1)

    def called(self, result: str, took_ms: int) -> None:
        """Note a call."""
        self.results[result] += 1
        self.sum_ms += took_ms
        self.counts[bisect.bisect_left(BOUNDS_MS, took_ms)] += 1
