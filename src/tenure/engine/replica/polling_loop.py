"""A loop that reads the store when it is notified, and also at an interval while needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from tenure.core.limits import NEWS_FIRST_MS, NEWS_POLL_MS, NEWS_READ_MS
from tenure.engine.store_outage import StoreOutage
from tenure.store.failure import StoreError

log = structlog.get_logger("tenure.engine")

# The pause after a read, in multiples of its duration: a caller that asks for one finished task
# after the other waits for milliseconds, and a busy store is read every 50 ms for all callers.
_REST: Final = 9


class PollingLoop:
    """Reads at once when it is notified, but for no more than a tenth of the time.

    ``period_ms`` is the interval of full reads, or None while there is nothing to read. The first
    full read comes soon after there is something: before that, the others did not know that a hint
    was needed.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[bool], Awaitable[None]],
        period_ms: Callable[[], int | None],
        *,
        outage: StoreOutage,
        first_ms: int = NEWS_FIRST_MS,
    ) -> None:
        """Read with ``look``, whose parameter says whether to read everything."""
        self.name = name
        self._first_ms = first_ms
        self._outage = outage
        self._look = look
        self._period_ms = period_ms
        self._called = asyncio.Event()
        self._full_at: float | None = None

    @property
    def has_date(self) -> bool:
        """Return whether a full read comes soon, also without a notification."""
        return self._full_at is not None

    def call(self) -> None:
        """Read soon."""
        if not self._called.is_set():
            self._called.set()

    async def serve(self) -> None:
        """Read until cancelled; a failed read is repeated."""
        loop = asyncio.get_running_loop()
        while True:
            is_full = await self._wait()
            self._called.clear()
            began_s = loop.time()
            if await self._try(is_full=is_full):
                rest_s = _REST * (loop.time() - began_s)
                await asyncio.sleep(min(rest_s, NEWS_READ_MS / 1000))
            else:
                self._called.set()
                await asyncio.sleep(NEWS_POLL_MS / 1000)

    async def _wait(self) -> bool:
        """Wait for a notification or a full read; return whether it is time for the latter."""
        period_ms = self._period_ms()
        if period_ms is None:
            self._full_at = None
            await self._called.wait()
            return False
        now = asyncio.get_running_loop().time()
        if self._full_at is None:
            self._full_at = now + min(period_ms, self._first_ms) / 1000
        try:
            async with asyncio.timeout_at(self._full_at):
                await self._called.wait()
        except TimeoutError:
            pass
        now = asyncio.get_running_loop().time()
        if now < self._full_at:
            return False
        self._full_at = now + period_ms / 1000
        return True

    async def _try(self, *, is_full: bool) -> bool:
        try:
            await self._look(is_full)
        except StoreError as error:
            if not self._outage.failed(error):
                log.warning("polling_loop.failed", loop=self.name, error=str(error))
        except Exception:
            log.exception("polling_loop.failed", loop=self.name)
        else:
            return True
        return False
