"""The numbers of one line in one step, and how they are added up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final

import msgspec

from tenure.core.limits import STATISTICS_TYPES_MAX
from tenure.engine.latencies import LATENCY_BOUNDS_MS

OTHER: Final = "other"
"""The name of all queues, or types, beyond those that are told apart."""
# What has waited longer than the last bound is shown with twice that bound.
_LAST_MS: Final = 2 * LATENCY_BOUNDS_MS[-1]


class Figures(msgspec.Struct, array_like=True):
    """How many tasks were enqueued, started and ended, and how long they waited and ran.

    ``wait`` and ``run`` count latencies between bounds, without the zeros at their end.
    """

    enqueued: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    wait: list[int] = []
    run: list[int] = []

    def add(self, other: Figures) -> None:
        """Add the numbers of another step or line."""
        self.enqueued += other.enqueued
        self.started += other.started
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.lost += other.lost
        self.wait = _sums(self.wait, other.wait)
        self.run = _sums(self.run, other.run)


def total(parts: Iterable[Figures]) -> Figures:
    """Return the sum of some figures."""
    whole = Figures()
    for part in parts:
        whole.add(part)
    return whole


def note(counts: list[int], latency_ms: int, weight: int) -> None:
    """Count a latency; on a bound it counts below it."""
    slot = bisect_left(LATENCY_BOUNDS_MS, latency_ms)
    if slot >= len(counts):
        counts += [0] * (slot + 1 - len(counts))
    counts[slot] += weight


def percentiles_ms(counts: Sequence[int]) -> tuple[int, int, int]:
    """Return the latencies that 50, 95 and 99 of 100 do not exceed."""
    p50, p95, p99 = (_percentile_ms(counts, share) for share in (0.5, 0.95, 0.99))
    return p50, p95, p99


def _percentile_ms(counts: Sequence[int], share: float) -> int:
    """Return the latency that this share does not exceed; between two bounds it is a guess."""
    left = share * sum(counts)
    if not left:
        return 0
    for slot, count in enumerate(counts):
        if count and left <= count:
            low_ms = LATENCY_BOUNDS_MS[slot - 1] if slot else 0
            is_bound = slot < len(LATENCY_BOUNDS_MS)
            high_ms = LATENCY_BOUNDS_MS[slot] if is_bound else _LAST_MS
            return round(low_ms + (high_ms - low_ms) * left / count)
        left -= count
    return _LAST_MS


class QueueStep(msgspec.Struct, array_like=True):
    """One queue in one step: its figures by type, and what its last sample has seen."""

    types: dict[str, Figures]
    pending: int = 0
    oldest_waiting_ms: int = 0

    def add(self, other: QueueStep) -> None:
        """Add another queue or server of the same step."""
        self._add_types(other)
        self.pending = max(self.pending, other.pending)
        self.oldest_waiting_ms = max(self.oldest_waiting_ms, other.oldest_waiting_ms)

    def add_queue(self, other: QueueStep) -> None:
        """Add another queue: their waiting tasks are together as many."""
        pending = self.pending + other.pending
        self.add(other)
        self.pending = pending

    def _add_types(self, other: QueueStep) -> None:
        for name, figures in other.types.items():
            is_known = name in self.types or len(self.types) < STATISTICS_TYPES_MAX
            self.types.setdefault(name if is_known else OTHER, Figures()).add(figures)


def _sums(some: Sequence[int], others: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip_longest(some, others, fillvalue=0)]
