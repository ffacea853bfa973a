"""A bell for the few coroutines that wait for news, with a time at which they stop waiting."""

from __future__ import annotations

import asyncio
import math


class Bell:
    """Wakes everybody who waits. A ring that nobody hears is kept for the next who waits."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_rung = False

    def ring(self) -> None:
        """Let whoever waits look up."""
        self._is_rung = True
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait for the next ring, or for so long."""
        if self._is_rung or seconds <= 0:
            self._is_rung = False
            return
        loop = asyncio.get_running_loop()
        rung = loop.create_future()
        self._waiting.add(rung)
        timer = None if seconds == math.inf else loop.call_later(seconds, _wake, rung)
        try:
            await rung
        finally:
            self._waiting.discard(rung)
            self._is_rung = False
            if timer is not None:
                timer.cancel()


def _wake(rung: asyncio.Future[None]) -> None:
    if not rung.done():
        rung.set_result(None)
