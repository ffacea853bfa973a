"""How deliveries of this server ended, for metrics."""

from __future__ import annotations

from collections import Counter

from tenure.core.endpoint.verdict import Delivery, Verdict


class DeliveryTally:
    """Counts results, and the time that they took."""

    def __init__(self) -> None:
        """Start at zero."""
        self.counts: Counter[Verdict] = Counter()
        self.took_ms = 0

    def note(self, delivery: Delivery) -> None:
        """Count a delivery."""
        self.counts[delivery.verdict] += 1
        self.took_ms += delivery.took_ms
