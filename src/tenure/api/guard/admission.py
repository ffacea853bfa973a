"""Whether new work is accepted: early refusal when accepted work starts to wait too long.

A queue that only grows helps nobody: callers time out, and reports and heartbeats wait behind them.
So the server accepts as much new work as it does within a target time, which it measures; the rest
is refused, before it is read if possible. Heartbeats, reports and completions are never refused
here.

Work also waits where it cannot be counted: in a late event loop. That is measured, and some work is
refused for it too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from tenure.core import limits
from tenure.core.limits import ROOM_GROWS, ROOM_SHRINKS
from tenure.engine.clock import Clock
from tenure.errors import RateLimited

log = structlog.get_logger("tenure.api")
MESSAGE: Final = "The server is overloaded. Try again after the given time."


def overloaded() -> RateLimited:
    """Return the refusal of new work."""
    return RateLimited(MESSAGE, retry_after_ms=limits.OVERLOAD_RETRY_MS)


class Room:
    """How much new work may be open: grows while it is fast, and shrinks when it is slow."""

    def __init__(self) -> None:
        """Start with room for a burst."""
        self.size = float(limits.NEW_WORK_OPEN_START)
        self._took_ms = 0
        self._count = 0
        self._open_max = 0

    def opened(self, open_count: int) -> None:
        """Note how much is open."""
        self._open_max = max(self._open_max, open_count)

    def closed(self, took_ms: int) -> None:
        """Note how long a request took."""
        self._took_ms += took_ms
        self._count += 1

    def adapt(self) -> None:
        """Adjust the limit by what was noted since the last time."""
        mean_ms = self._took_ms / max(1, self._count)
        if mean_ms > limits.OVERLOAD_WAIT_MS:
            self.size = max(limits.NEW_WORK_OPEN_MIN, self.size * ROOM_SHRINKS)
        elif not self._count and not self._open_max:
            # Nothing is known about an idle server: it gets its start value again.
            self.size = max(self.size, min(limits.NEW_WORK_OPEN_START, self.size * ROOM_GROWS))
        elif mean_ms < limits.OVERLOAD_WAIT_MS / 2 and self._open_max > self.size / 2:
            self.size = min(limits.NEW_WORK_OPEN_MAX, self.size * ROOM_GROWS)
        self._took_ms = self._count = self._open_max = 0


class Admission:
    """Counts the open new work, and decides whether more is accepted."""

    def __init__(self, clock: Clock) -> None:
        """Start with nothing open and a loop that is not late."""
        self._clock = clock
        self._open: OrderedDict[int, int] = OrderedDict()
        self._number = 0
        self._room = Room()
        # Accepted and not started yet; work from before the last turn of the loop has started.
        self._expected = 0
        self._let_in = 0
        self._asked = 0
        self._asked_before = 0
        self._lag_ms = 0
        self._tick_due_ms: int | None = None
        self._turn = 0
        self.refused_count = 0

    @property
    def open_count(self) -> int:
        """Return how many requests with new work are open."""
        return len(self._open)

    @property
    def is_expecting(self) -> bool:
        """Return whether there is an accepted request that has not started."""
        return self._expected > 0

    def _wait_ms(self) -> int:
        """Return how long the open requests have waited, if there are many.

        If only a few wait, something else delays them, and refusing others would not help.
        """
        now_ms = self._clock.monotonic_ms()
        wait_ms = 0
        if len(self._open) >= limits.NEW_WORK_OPEN_MIN:
            wait_ms = now_ms - next(iter(self._open.values()))
        if self._asked + self._asked_before >= limits.NEW_WORK_OPEN_MIN:
            wait_ms = max(wait_ms, self._lag_ms)
            if self._tick_due_ms is not None:
                wait_ms = max(wait_ms, now_ms - self._tick_due_ms)
        return wait_ms

    def _admitted_of(self) -> int:
        """Return of how many requests one is accepted; 0 means none."""
        wait_ms = self._wait_ms()
        is_full = len(self._open) + self._expected >= self._room.size
        if is_full or wait_ms > 4 * limits.OVERLOAD_WAIT_MS:
            return 0
        if wait_ms > 2 * limits.OVERLOAD_WAIT_MS:
            return limits.OVERLOAD_ADMITTED_OF**2
        return limits.OVERLOAD_ADMITTED_OF if wait_ms > limits.OVERLOAD_WAIT_MS else 1

    def refuses(self) -> bool:
        """Return whether a request with new work has to be refused now."""
        self._asked += 1
        every = self._admitted_of()
        self._turn += 1
        if every and self._turn % every == 0:
            self._expected += 1
            self._let_in += 1
            return False
        self.refused_count += 1
        return True

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count a request with new work as open for as long as the block runs."""
        self._expected = max(0, self._expected - 1)
        self._number = number = self._number + 1
        self._open[number] = began_ms = self._clock.monotonic_ms()
        self._room.opened(len(self._open))
        try:
            yield
        finally:
            del self._open[number]
            self._room.closed(self._clock.monotonic_ms() - began_ms)

    async def serve(self) -> None:
        """Measure until cancelled."""
        said = 0
        told_at_ms = self._clock.monotonic_ms()
        while True:
            self._tick_due_ms = self._clock.monotonic_ms() + limits.OVERLOAD_TICK_MS
            await asyncio.sleep(limits.OVERLOAD_TICK_MS / 1_000)
            now_ms = self._clock.monotonic_ms()
            self._lag_ms = now_ms - self._tick_due_ms
            self._asked_before, self._asked = self._asked, 0
            # Some never start: their client disconnected, or their key was refused.
            self._expected, self._let_in = min(self._expected, self._let_in), 0
            self._room.adapt()
            if self.refused_count > said and now_ms - told_at_ms >= limits.OVERLOAD_LOG_MS:
                log.warning(
                    "server.overloaded",
                    refused=self.refused_count - said,
                    open=len(self._open),
                    room=int(self._room.size),
                    wait_ms=self._wait_ms(),
                )
                said, told_at_ms = self.refused_count, now_ms
