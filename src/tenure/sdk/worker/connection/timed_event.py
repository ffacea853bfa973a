"""An event that a few coroutines wait for, with a timeout."""

from __future__ import annotations

import asyncio
import math


class TimedEvent:
    """Wakes all waiting coroutines. If none waits, the next one does not have to wait."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_set = False

    def notify(self) -> None:
        """Wake all waiting coroutines."""
        self._is_set = True
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait for the next event, at most for some seconds."""
        if self._is_set or seconds <= 0:
            self._is_set = False
            return
        loop = asyncio.get_running_loop()
        awaited = loop.create_future()
        self._waiting.add(awaited)
        timer = None if seconds == math.inf else loop.call_later(seconds, _wake, awaited)
        try:
            await awaited
        finally:
            self._waiting.discard(awaited)
            self._is_set = False
            if timer is not None:
                timer.cancel()


def _wake(awaited: asyncio.Future[None]) -> None:
    if not awaited.done():
        awaited.set_result(None)
