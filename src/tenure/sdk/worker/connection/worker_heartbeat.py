"""The heartbeats of one incarnation, and the worker's own estimate of its lease."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Final

# The worker starts nothing new this long before the lease ends: clocks may differ a little.
FENCE_MARGIN_S: Final = 1.0
# For short leases, as in tests, the margin is smaller.
FENCE_MARGIN_SHARE: Final = 0.25
# Spreads the heartbeats of workers that were started together.
JITTER_MIN: Final = 0.85
# Even on a good connection an answer may take this long.
PATIENCE_S_MIN: Final = 2.0
# Leaves time for three more tries when one was not answered.
AGAIN_SHARE: Final = 0.25


def boot_time_s() -> float:
    """Return the time of a clock that also runs while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class WorkerHeartbeat:
    """Token, interval and lease; one heartbeat is in flight at a time.

    The lease counts from the moment in which the last accepted heartbeat was *sent*. The server
    counts from a later moment, so its lease never ends before the worker's estimate.
    """

    def __init__(
        self, clock: Callable[[], float] = boot_time_s, chance: random.Random | None = None
    ) -> None:
        self.clock = clock
        self._chance = chance or random.Random()  # noqa: S311 (jitter is no secret)
        self.token = ""
        self.is_full = False
        self.interval_s = 1.0
        self.next_at_s = 0.0
        self.fence_at_s = 0.0
        self._sent_at_s: float | None = None
        self._starved_s = 0.0
        self._renewed_at_s = 0.0

    def begin(self, token: str, *, lease_ms: int, interval_ms: int, sent_at_s: float) -> None:
        """Start with the answer to a registration that was first sent at the given moment."""
        self.token = token
        self._renew(lease_ms, sent_at_s)
        self._plan(interval_ms)

    def resume(self, token: str, *, interval_ms: int) -> None:
        """Continue with the token of a welcome, which does not renew the lease."""
        self.token, self._sent_at_s, self.is_full = token, None, False
        self._plan(interval_ms)

    def due_in_s(self) -> float:
        """Return how long to wait for the next beat; for ever while one is in flight."""
        if self._sent_at_s is not None:
            return math.inf
        return max(0.0, self.next_at_s - self.clock())

    @property
    def is_due(self) -> bool:
        """Return whether a heartbeat is due, and none is in flight."""
        return self._sent_at_s is None and self.clock() >= self.next_at_s

    def overdue_in_s(self) -> float:
        """Return how long an answer may still take before the connection is taken for dead.

        A heartbeat that cannot even be sent, because nobody reads, counts from when it was due.
        Time in which this thread could not run is not held against the server, as long as the
        lease is certain: an answer may be here that nobody could look at.
        """
        since_s = self.next_at_s if self._sent_at_s is None else self._sent_at_s
        over_at_s = since_s + self.patience_s
        if self._starved_s:
            over_at_s = max(over_at_s, min(over_at_s + self._starved_s, self.fence_at_s))
        return max(0.0, over_at_s - self.clock())

    def starved(self, seconds: float) -> None:
        """Record for how long this thread could not run while it waited for an answer."""
        self._starved_s += max(0.0, seconds)

    @property
    def patience_s(self) -> float:
        """How long to wait for an answer before the connection is taken for dead."""
        return max(self.interval_s, PATIENCE_S_MIN)

    def send(self) -> None:
        """Record that a heartbeat is sent now."""
        assert self._sent_at_s is None
        self._sent_at_s = self.clock()
        self._starved_s = 0.0

    def accepted(self, token: str, *, lease_ms: int, interval_ms: int) -> None:
        """Take the new token and the renewed lease."""
        # After a heartbeat was given up, it is unknown when the answered one was sent.
        if self._sent_at_s is None:
            return
        sent_at_s, self._sent_at_s = self._sent_at_s, None
        self.token, self.is_full = token, False
        self._renew(lease_ms, sent_at_s)
        self._plan(interval_ms)

    def mismatched(self, current_token: str) -> None:
        """Take the current token, and send the full held set at once."""
        self.token, self.is_full, self._sent_at_s = current_token, True, None
        self.next_at_s = self.clock()

    def unanswered(self) -> None:
        """Try again soon, with the same token."""
        self._sent_at_s = None
        self.next_at_s = self.clock() + self.interval_s * AGAIN_SHARE

    @property
    def is_fenced(self) -> bool:
        """Return whether the lease may be over, by the clock of this worker."""
        return self.clock() >= self.fence_at_s

    @property
    def fenced_in_s(self) -> float:
        """How long the lease is certain from now on."""
        return max(0.0, self.fence_at_s - self.clock())

    def _renew(self, lease_ms: int, sent_at_s: float) -> None:
        lease_s = lease_ms / 1_000
        margin_s = min(FENCE_MARGIN_S, lease_s * FENCE_MARGIN_SHARE)
        self._renewed_at_s = sent_at_s
        self.fence_at_s = sent_at_s + lease_s - margin_s

    def _plan(self, interval_ms: int) -> None:
        """Plan the next heartbeat one interval after the last renewal, but not in the past."""
        self._starved_s = 0.0
        self.interval_s = interval_ms / 1_000
        pause_s = self.interval_s * self._chance.uniform(JITTER_MIN, 1)
        self.next_at_s = max(self.clock(), self._renewed_at_s + pause_s)
