"""Where calls with new work wait before they are read, so that other calls can be refused.

gRPC accepts one call in two turns of its loop, and does not say how many wait. When turns are long,
because each reads a hundred tasks, calls wait inside gRPC: they are neither accepted nor refused.
So under load reading pauses at intervals, for as long as calls keep arriving.
"""

from __future__ import annotations

import asyncio

from tenure.core import limits
from tenure.engine.clock import Clock


class ReadingTurns:
    """Lets calls pass in the order of their arrival, except those that waited too long."""

    def __init__(self, clock: Clock) -> None:
        """Start without calls."""
        self._clock = clock
        self._lock = asyncio.Lock()
        self._arrived_count = 0
        self._paused_at_ms = clock.monotonic_ms()

    def arrived(self) -> None:
        """Note that a call arrived."""
        self._arrived_count += 1

    async def is_passed(self) -> bool:
        """Wait until it is this call's turn; return whether that was soon enough."""
        came_at_ms = self._clock.monotonic_ms()
        async with self._lock:
            if self._clock.monotonic_ms() - self._paused_at_ms >= limits.READING_MS:
                await self._pause()
        return self._clock.monotonic_ms() - came_at_ms <= limits.OVERLOAD_WAIT_MS

    async def _pause(self) -> None:
        """Wait until no more calls arrive; shorter sleeps would miss those on their way."""
        ends_at_ms = self._clock.monotonic_ms() + limits.READING_PAUSE_MS
        quiet_count = 0
        while quiet_count < limits.QUIET_NAPS and self._clock.monotonic_ms() < ends_at_ms:
            seen_count = self._arrived_count
            await asyncio.sleep(limits.QUIET_NAP_MS / 1_000)
            quiet_count = quiet_count + 1 if seen_count == self._arrived_count else 0
        self._paused_at_ms = self._clock.monotonic_ms()
