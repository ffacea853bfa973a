"""The chain of heartbeats of one incarnation, and the worker's own estimate of its lease."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Final

# How long before the lease is over the worker stops starting work: clocks may differ a little.
FENCE_MARGIN_S: Final = 1.0
# A short lease, as tests have, is not all margin.
FENCE_MARGIN_SHARE: Final = 0.25
# Beats of many workers that were started together drift apart.
JITTER_MIN: Final = 0.85
# Below this an answer may be late on a good line.
PATIENCE_S_MIN: Final = 2.0
# Three tries fit into what is left when one was not answered.
AGAIN_SHARE: Final = 0.25


def boot_time_s() -> float:
    """Return the time of a clock that also runs while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class WorkerHeartbeat:
    """Token, interval and lease; one heartbeat is in flight at a time.

    The lease is counted from the moment in which the last accepted heartbeat was *sent*: the server
    counts from later, so the worker never believes longer in its lease than the server.
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
        """Start with what a registration says that was first sent at the given moment."""
        self.token = token
        self._renew(lease_ms, sent_at_s)
        self._plan(interval_ms)

    def resume(self, token: str, *, interval_ms: int) -> None:
        """Go on with what a welcome says; it renews nothing, so the lease ends as it did."""
        self.token, self._sent_at_s, self.is_full = token, None, False
        self._plan(interval_ms)

    def due_in_s(self) -> float:
        """Return how long to wait for the next beat; for ever while one is in flight."""
        if self._sent_at_s is not None:
            return math.inf
        return max(0.0, self.next_at_s - self.clock())

    @property
    def is_due(self) -> bool:
        """Tell whether it is time for a heartbeat, and none is in flight."""
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
        """Note for how long this thread could not run while an answer was waited for."""
        self._starved_s += max(0.0, seconds)

    @property
    def patience_s(self) -> float:
        """How long to wait for an answer before the connection is taken for dead."""
        return max(self.interval_s, PATIENCE_S_MIN)

    def send(self) -> None:
        """Note that a heartbeat goes out now."""
        assert self._sent_at_s is None
        self._sent_at_s = self.clock()
        self._starved_s = 0.0

    def accepted(self, token: str, *, lease_ms: int, interval_ms: int) -> None:
        """Take the new token and the renewed lease."""
        # An answer to a beat that was given up says nothing about when that was sent.
        if self._sent_at_s is None:
            return
        sent_at_s, self._sent_at_s = self._sent_at_s, None
        self.token, self.is_full = token, False
        self._renew(lease_ms, sent_at_s)
        self._plan(interval_ms)

    def mismatched(self, current_token: str) -> None:
        """Take the current token and say everything that is held, at once."""
        self.token, self.is_full, self._sent_at_s = current_token, True, None
        self.next_at_s = self.clock()

    def unanswered(self) -> None:
        """Try again soon, with the same token."""
        self._sent_at_s = None
        self.next_at_s = self.clock() + self.interval_s * AGAIN_SHARE

    @property
    def is_fenced(self) -> bool:
        """Tell whether the lease may be over, as far as this worker can know."""
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
        """Plan the next beat an interval after the last renewal: now, if that was long ago."""
        self._starved_s = 0.0
        self.interval_s = interval_ms / 1_000
        pause_s = self.interval_s * self._chance.uniform(JITTER_MIN, 1)
        self.next_at_s = max(self.clock(), self._renewed_at_s + pause_s)
