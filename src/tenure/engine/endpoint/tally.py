"""How deliveries of this server ended, in numbers that only increase."""

from __future__ import annotations

import bisect

from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.engine.seat.call_tally import BOUNDS_MS


class DeliveryTally:
    """Deliveries by result, and how long they took."""

    def __init__(self) -> None:
        """Start with zeros."""
        self.results = {each.value: 0 for each in Verdict}
        self.sum_ms = 0
        # Of each bound the deliveries up to it and above the bound before; then the others.
        self.counts = [0] * (len(BOUNDS_MS) + 1)

    def note(self, delivery: Delivery) -> None:
        """Count a delivery."""
        self.results[delivery.verdict.value] += 1
        self.sum_ms += delivery.took_ms
        self.counts[bisect.bisect_left(BOUNDS_MS, delivery.took_ms)] += 1
