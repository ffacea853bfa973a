"""The rates of one namespace or one worker, so that it slows down only itself.

A request is refused before anything is accepted, always with the time after which to repeat it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tenure.api.guard.admission import Admission
from tenure.api.guard.refusal_log import RefusalLog
from tenure.api.setting import ServerSettings
from tenure.core import limits
from tenure.engine.clock import Clock
from tenure.errors import RateLimited

# Buckets count thousandths: a rate per second in whole tokens is the same per ms in thousandths.
_PARTS: Final = 1_000


class RateLimit:
    """A bucket of tokens for each key: it holds ``burst`` and gains ``per_s`` each second.

    A request larger than a bucket is accepted when the bucket is full, and leaves a debt: a batch
    of any allowed size is possible at some time, and the next one has to wait longer.
    """

    def __init__(self, clock: Clock, *, what: str, per_s: int, burst: int = 0) -> None:
        """Start with full buckets; 0 per second means no limit, a burst of 0 means one second's."""
        assert per_s >= 0
        self._clock = clock
        self._what = what
        self._per_s = per_s
        self._burst = (burst or per_s) * _PARTS
        # The last used ones are at the end. A removed bucket starts full again, as most are after a
        # second without use.
        self._buckets: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._buckets)

    def take(self, key: str, amount: int = 1) -> None:
        """Take tokens, or refuse with the time after which there are enough."""
        if not self._per_s:
            return
        now_ms = self._clock.monotonic_ms()
        left, at_ms = self._buckets.get(key, (self._burst, now_ms))
        left = min(self._burst, left + (now_ms - at_ms) * self._per_s)
        missing = min(amount * _PARTS, self._burst) - left
        if missing > 0:
            raise RateLimited(
                f"More than {self._per_s} {self._what} per second. Try again after the given time.",
                retry_after_ms=-(-missing // self._per_s),
            )
        self._buckets[key] = (left - amount * _PARTS, now_ms)
        self._buckets.move_to_end(key)
        if len(self._buckets) > limits.BUCKETS_MAX:
            self._buckets.popitem(last=False)


class Crowd:
    """Limits how many may be inside at a time, for each key; only present ones are counted."""

    def __init__(self, what: str, *, most: int) -> None:
        """Start empty."""
        assert most > 0
        self._what = what
        self._most = most
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of keys with somebody inside."""
        return len(self._counts)

    @contextmanager
    def place(self, key: str) -> Iterator[None]:
        """Be inside while the block runs, or be refused before it begins."""
        if self._counts[key] >= self._most:
            raise RateLimited(
                f"There are already {self._most} {self._what}, which is the limit.",
                retry_after_ms=limits.CROWD_RETRY_MS,
            )
        self._counts[key] += 1
        try:
            yield
        finally:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


class Allowance:
    """All limits of one server for its clients, over gRPC and HTTP together."""

    def __init__(self, clock: Clock, settings: ServerSettings | None = None) -> None:
        """Use the limits of the settings."""
        made = settings or ServerSettings()
        self.enqueues = RateLimit(
            clock, what="tasks of one namespace are enqueued", per_s=made.enqueues_per_s
        )
        self.registrations = RateLimit(
            clock, what="workers of one namespace are registered", per_s=made.registrations_per_s
        )
        self.lists = RateLimit(
            clock, what="lists of one namespace are asked for", per_s=made.lists_per_s
        )
        self.beats = RateLimit(
            clock,
            what="heartbeats of one worker come",
            per_s=made.beats_per_s,
            burst=made.beats_per_s * limits.BEATS_BURST_S,
        )
        self.callbacks = RateLimit(
            clock,
            what="callbacks of one attempt come",
            per_s=limits.CALLBACKS_PER_S,
            burst=limits.CALLBACKS_PER_S * limits.CALLBACKS_BURST_S,
        )
        self.sessions = Crowd("sessions in this namespace", most=made.sessions_max)
        self.polls = Crowd("long polls in this namespace", most=made.polls_max)
        self.waits = Crowd("waiting requests in this namespace", most=made.waits_max)
        self.streams = Crowd("streams of this key or address", most=limits.CALLER_STREAMS_MAX)
        self.refusals = RefusalLog(clock)
        self.admission = Admission(clock)
