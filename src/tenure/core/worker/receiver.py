"""A receiver: anything that can be given an attempt, as it was under its lock."""

from __future__ import annotations

import msgspec

from tenure.core.queue import Queue
from tenure.core.worker.lease import is_late
from tenure.core.worker.record import Worker


class Receiver(msgspec.Struct, frozen=True, gc=False):
    """A worker that may be handed work, its queue's settings, its lease, the time after the lock.

    One without a lease is never late: nothing is known of it but what it reports. What it holds is
    counted if nobody else can hand it work while this lock lasts.
    """

    worker: Worker
    queue: Queue | None
    beat_at_ms: int | None
    lease_ms: int | None
    now_ms: int | None
    held_count: int | None = None

    def is_late(self, now_ms: int) -> bool:
        """Return whether it missed a heartbeat: it keeps its work and gets no more."""
        if self.beat_at_ms is None or self.lease_ms is None:
            return False
        return is_late(beat_at_ms=self.beat_at_ms, lease_ms=self.lease_ms, now_ms=now_ms)
