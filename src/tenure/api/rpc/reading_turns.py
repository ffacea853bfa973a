"""Where calls with new work wait before they are read, so that others can come and be told.

gRPC takes one call in two turns of its loop, and there is no telling how many wait for that. When
turns are long, because each reads a hundred tasks, calls pile up there unseen: they are neither
accepted nor refused. So in a crowd reading pauses now and then, for as long as calls keep coming.
"""

from __future__ import annotations

import asyncio

from tenure.core import limits
from tenure.engine.clock import Clock


class ReadingTurns:
    """Lets calls through in the order in which they came, those excepted that waited too long."""

    def __init__(self, clock: Clock) -> None:
        """Start with nobody."""
        self._clock = clock
        self._lock = asyncio.Lock()
        self._arrived_count = 0
        self._paused_at_ms = clock.monotonic_ms()

    def arrived(self) -> None:
        """Note that a call came."""
        self._arrived_count += 1

    async def is_passed(self) -> bool:
        """Wait until it is this call's turn; tell whether it came soon enough to be of use."""
        came_at_ms = self._clock.monotonic_ms()
        async with self._lock:
            if self._clock.monotonic_ms() - self._paused_at_ms >= limits.READING_MS:
                await self._pause()
        return self._clock.monotonic_ms() - came_at_ms <= limits.OVERLOAD_WAIT_MS

    async def _pause(self) -> None:
        """Wait until calls have stopped coming; shorter naps would miss those on their way."""
        ends_at_ms = self._clock.monotonic_ms() + limits.READING_PAUSE_MS
        quiet_count = 0
        while quiet_count < limits.QUIET_NAPS and self._clock.monotonic_ms() < ends_at_ms:
            seen_count = self._arrived_count
            await asyncio.sleep(limits.QUIET_NAP_MS / 1_000)
            quiet_count = quiet_count + 1 if seen_count == self._arrived_count else 0
        self._paused_at_ms = self._clock.monotonic_ms()
