"""Times without a server: how long to wait before the next try, and two lines in the log."""

from __future__ import annotations

import logging
import time

from tenure.errors import TenureError
from tenure.sdk.link import Backoff

log = logging.getLogger("tenure.worker")


class Outage:
    """Whether the server is away; its beginning and its end are logged, not each try."""

    def __init__(self) -> None:
        self._backoff: Backoff | None = None
        self._since_s = 0.0

    def pause_s(self, error: TenureError) -> float:
        """Note a failure and return how long to wait."""
        if self._backoff is None:
            self._backoff = Backoff()
            self._since_s = time.monotonic()
            log.warning("%s The worker goes on trying and keeps what it holds.", error.message)
        return self._backoff.next_s(error)

    def over(self) -> None:
        """Note that a server has answered."""
        if self._backoff is not None:
            log.info("The server answers again after %.1f s.", time.monotonic() - self._since_s)
            self._backoff = None
