"""Measures the lag of the user's event loop, from the connection's thread."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from tenure.sdk.worker.execution.thread_trace import stack_of

_PROBE_S: Final = 0.25
_LAG_S_MAX: Final = 1.0
# The place where it hangs is near the end. The rest of the stack is long.
_STACK_FRAMES: Final = 12
_log = logging.getLogger("tenure.worker")


class Watchdog:
    """Posts callbacks to the user's loop and measures how long each waits.

    A lag of more than a second is reported, and logged once with the place in the code; so is its
    end. The lease does not depend on that loop, but no activity on it runs meanwhile.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[int], None],
        running: Callable[[], list[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch ``loop``; ``running`` names the async activities on it."""
        self._loop = loop
        self._report = report
        self._running = running
        self._clock = clock
        self._thread_id = 0
        self._posted_at_s: float | None = None
        self._is_behind = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; called on the connection's loop."""
        self._wait()
        # The first one also learns in which thread the loop runs.
        self._post()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_PROBE_S, self._probe)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self) -> None:
        posted_at_s = self._posted_at_s
        if posted_at_s is None:
            self._post()
        else:
            self._judge(self._clock() - posted_at_s)
        if self._timer is not None:
            self._wait()

    def _post(self) -> None:
        if self._is_behind:
            self._is_behind = False
            self._report(0)
            _log.warning("The event loop is no longer blocked.")
        self._posted_at_s = self._clock()
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            # It is closed: there is nothing to watch.
            self.stop()

    def _answer(self) -> None:
        """Answer, in the thread of the watched loop."""
        self._thread_id = threading.get_ident()
        self._posted_at_s = None

    def _judge(self, lag_s: float) -> None:
        if lag_s < _LAG_S_MAX:
            return
        if not self._is_behind:
            self._is_behind = True
            _log.warning(
                "The event loop is blocked. Async activities make no progress. Running: %s. "
                'Run blocking code in a thread, or declare the activity without "async". '
                "It is blocked at:\n%s",
                ", ".join(self._running()) or "none",
                self._stack(),
            )
        self._report(round(lag_s * 1_000))

    def _stack(self) -> str:
        lines = (stack_of(self._thread_id) or [])[:_STACK_FRAMES]
        return "\n".join(reversed(lines)) or "an unknown place"
