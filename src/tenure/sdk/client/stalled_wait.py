"""Waits that take long: the log says why the task does not run, as far as the server knows.

One task is asked about at a time, and one line is written for each kind of reason and minute,
however many tasks are waited for.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tenure.errors import TenureError
from tenure.sdk.client.view import Explanation

log = logging.getLogger("tenure.client")

# How long a wait takes before it is asked about.
STALLED_S: Final = 5.0
LOOK_S: Final = 1.0
# How long it takes until the same is asked or said again.
_AGAIN_S: Final = 60.0
# Reasons that are as they should be: the task runs, its turn comes, or it was asked for later.
_GOOD: Final = frozenset(
    {
        *("held", "next", "work_ahead", "workers_busy", "queue_full"),
        *("waiting", "cancelling", "finished", "not_before"),
    }
)


class _Wait:
    """One wait for a task."""

    __slots__ = ("ask_at", "task_id")

    def __init__(self, task_id: str, ask_at: float) -> None:
        self.task_id = task_id
        self.ask_at = ask_at


class StalledWaits:
    """Who waits since when, and what was said about it."""

    def __init__(self, explain: Callable[[str], Awaitable[Explanation]]) -> None:
        """Ask ``explain`` about tasks that are waited for."""
        self._explain = explain
        self._waits: dict[int, _Wait] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._silent_until: dict[str, float] = {}

    def begin(self, task_id: str) -> int:
        """Note a wait; return the number by which it ends."""
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        self._waits[number] = _Wait(task_id, loop.time() + STALLED_S)
        if self._timer is None:
            self._timer = loop.call_later(STALLED_S, self._look)
        return number

    def end(self, number: int) -> None:
        """Forget a wait."""
        self._waits.pop(number, None)

    async def close(self) -> None:
        """Ask no more."""
        self._waits = {}
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _look(self) -> None:
        """Ask about the wait that is due first, if there is one."""
        self._timer = None
        if not self._waits:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._asking is None or self._asking.done():
            first = min(self._waits.values(), key=lambda each: each.ask_at)
            if first.ask_at <= now:
                first.ask_at = now + _AGAIN_S
                self._asking = loop.create_task(self._ask(first.task_id))
        self._timer = loop.call_later(LOOK_S, self._look)

    async def _ask(self, task_id: str) -> None:
        try:
            explanation = await self._explain(task_id)
        except TenureError:
            # Whoever waits for the result hears of an outage, and of a task that is not there.
            return
        reason = explanation.reasons[0]
        now = asyncio.get_running_loop().time()
        if reason.code in _GOOD or self._silent_until.get(reason.code, now) > now:
            return
        self._silent_until[reason.code] = now + _AGAIN_S
        log.warning(
            "Waiting for task %s, which does not run. %s: %s %s",
            task_id,
            reason.code,
            reason.message,
            reason.advice,
        )
