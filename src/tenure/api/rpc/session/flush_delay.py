"""A short wait before a write: a message that is not urgent is sent with the next one."""

from __future__ import annotations

import asyncio

from tenure.core.limits import LULL_MS


class FlushDelay:
    """Wakes a writer a little later, unless it has written before.

    Each write costs both sides far more than its content: a system call, and a thread that has to
    wake up.
    """

    def __init__(self, wake: asyncio.Event) -> None:
        """Wake with ``wake``."""
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Let the writer write soon."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LULL_MS / 1000, self._wake.set)

    def end(self) -> None:
        """Note that everything that waited is written now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
