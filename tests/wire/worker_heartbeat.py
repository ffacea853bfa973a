"""The chain of heartbeats of one incarnation, and the worker's own estimate of its lease."""

from __future__ import annotations

import random
import time
from typing import Final

FENCE_MARGIN_S: Final = 1.0


def now_s() -> float:
    """Return the time of a clock that also runs while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class HeartbeatChain:
    """Token, interval and lease; one heartbeat is in flight at a time."""

    def __init__(self) -> None:
        self.token = ""
        self.is_full = False
        self.interval_s = 1.0
        self.sent_at_s: float | None = None
        self.next_at_s = 0.0
        self._fence_at_s = 0.0

    def begin(self, token: str, *, lease_ms: int, interval_ms: int, sent_at_s: float) -> None:
        """Start with what a registration or a welcome says."""
        self.sent_at_s = None
        self.is_full = False
        self._renew(token, lease_ms=lease_ms, interval_ms=interval_ms, sent_at_s=sent_at_s)

    def accepted(self, token: str, *, lease_ms: int, interval_ms: int) -> None:
        """Take the new token."""
        # A worker that stood still gives the beat up and reads its answer in the same moment.
        if self.sent_at_s is None:
            return
        sent_at_s, self.sent_at_s = self.sent_at_s, None
        self.is_full = False
        self._renew(token, lease_ms=lease_ms, interval_ms=interval_ms, sent_at_s=sent_at_s)

    def _renew(self, token: str, *, lease_ms: int, interval_ms: int, sent_at_s: float) -> None:
        self.token = token
        self.interval_s = interval_ms / 1_000
        lease_s = lease_ms / 1_000
        self._fence_at_s = sent_at_s + lease_s - min(FENCE_MARGIN_S, lease_s / 4)
        self.next_at_s = now_s() + self.interval_s * random.uniform(0.85, 1.0)

    def mismatched(self, current_token: str) -> None:
        """Take the current token and say everything that is held, at once."""
        self.token, self.is_full, self.sent_at_s = current_token, True, None
        self.next_at_s = now_s()

    def unanswered(self) -> None:
        """Try again soon, with the same token."""
        self.sent_at_s = None
        self.next_at_s = now_s() + self.interval_s / 4

    @property
    def patience_s(self) -> float:
        """How long to wait for an answer before the connection is taken for dead."""
        return max(self.interval_s, 2.0)

    @property
    def is_fenced(self) -> bool:
        """Tell whether the lease may be over, as far as this worker can know."""
        return now_s() >= self._fence_at_s
