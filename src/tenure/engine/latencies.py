"""Latencies, counted between bounds: cheap enough for every task."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

# From a hand-out to a waiting worker to a job of an hour; a value on a bound counts below it.
LATENCY_BOUNDS_MS: Final = (
    *(1, 2, 5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000),
)


class Latencies:
    """How many latencies fell below each bound but not below the one before, and their sum."""

    def __init__(self) -> None:
        """Start with none."""
        self.counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.total_ms = 0

    def add(self, latencies: Iterable[int]) -> None:
        """Count many. After the store's clock was set back, negative values count as 0."""
        counts = self.counts
        total_ms = 0
        known_ms, slot = -1, 0
        for each in latencies:
            # Neighbours in a batch were mostly created together, so their latency is the same.
            if each != known_ms:
                known_ms, slot = each, bisect_left(LATENCY_BOUNDS_MS, each)
            counts[slot] += 1
            if each > 0:
                total_ms += each
        self.total_ms += total_ms
