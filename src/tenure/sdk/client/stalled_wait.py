"""Logs why a task does not run, when somebody waits for it for more than five seconds.

The server is asked about one task at a time. Each kind of reason is logged once per minute, for any
number of tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tenure.errors import TenureError
from tenure.sdk.client.explanation import Explanation

log = logging.getLogger("tenure.client")

# The server is asked about waits that take longer than this.
STALLED_S: Final = 5.0
LOOK_S: Final = 1.0
# The same task is asked about, and the same reason is logged, after this time again.
_AGAIN_S: Final = 60.0
# Reasons that need no warning: the task runs, waits for its turn, or is delayed.
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
    """The present waits, and the reasons that were logged."""

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
        """Stop asking."""
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
            # The wait itself reports outages and unknown tasks.
            return
        # Of a run: what is in the way of the task that it waits for.
        reason = explanation.reasons[0].cause
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
