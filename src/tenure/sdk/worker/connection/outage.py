"""Outages of the server: how long to wait before the next try, and when to log."""

from __future__ import annotations

import logging
import math
import time
from typing import Final

from tenure.errors import TenureError
from tenure.sdk.transport.channel import Backoff

log = logging.getLogger("tenure.worker")

# Somebody who reads the log because nothing happens should see it soon.
_REMIND_SECONDS: Final = 10.0


class Outage:
    """Whether the server is away. Logs the begin, a reminder now and then, and the end."""

    def __init__(self) -> None:
        self._backoff: Backoff | None = None
        self._since_s = 0.0
        self._told_s = 0.0

    def pause_s(self, error: TenureError) -> float:
        """Record a failure, and return how long to wait."""
        if self._backoff is None:
            self._backoff = Backoff()
            self._since_s = time.monotonic()
            self._told_s = -math.inf
        now_s = time.monotonic()
        if now_s - self._told_s >= _REMIND_SECONDS:
            self._told_s = now_s
            log.warning("%s The worker keeps its tasks and tries again.", error.message)
        return self._backoff.next_s(error)

    def over(self) -> None:
        """Record that a server has answered."""
        if self._backoff is not None:
            log.info(
                "The server answers again. It was away for %.1f s.",
                time.monotonic() - self._since_s,
            )
            self._backoff = None
