"""When each worker last showed that it is not deaf: a poll, a hand-out, or that it is full.

Kept for as long as two heartbeat intervals may last, so that it never grows with time.
"""

from __future__ import annotations

from collections import OrderedDict

from tenure.core.limits import LEASE_MS_MAX


class WorkerActivity:
    """The last instant of each worker, oldest first."""

    def __init__(self) -> None:
        """Start without workers."""
        self._at_mono_ms: OrderedDict[str, int] = OrderedDict()

    def note(self, worker_id: str, mono_ms: int) -> None:
        """Note that a worker requested work, got some, or has no slot for it."""
        self._at_mono_ms[worker_id] = mono_ms
        self._at_mono_ms.move_to_end(worker_id)

    def last_mono_ms(self, worker_id: str) -> int | None:
        """Return the instant, if it is recent."""
        return self._at_mono_ms.get(worker_id)

    def forget_old(self, mono_ms: int) -> None:
        """Drop instants that are too old to matter."""
        entries = self._at_mono_ms
        while entries and next(iter(entries.values())) < mono_ms - LEASE_MS_MAX:
            entries.popitem(last=False)
