"""The store's time as this server knows it before a batch reads it."""

from __future__ import annotations

from tenure.core.limits import (
    CLOCK_SET_BACK_MS_MAX,
    ENQUEUE_YOUNG_MS,
    STORE_TIME_KEPT_MS,
    YOUNG_MARGIN_MS,
)


class StoreTime:
    """How far the store's time is ahead of our monotonic clock, as read by the last batch.

    After the store's clock was set back, ids from before seem more recent than they are until it
    has caught up; until then nothing is returned.
    """

    def __init__(self) -> None:
        """Start without a known time."""
        self._ahead_ms: int | None = None
        self._learned_at_ms = 0
        self._unsure_until_ms = 0

    def learn(self, *, now_ms: int, ahead_ms: int) -> None:
        """Take in the time that a batch has read."""
        if self._ahead_ms is not None and ahead_ms < self._ahead_ms - YOUNG_MARGIN_MS:
            back_ms = min(self._ahead_ms - ahead_ms, CLOCK_SET_BACK_MS_MAX)
            until_ms = now_ms + back_ms + ENQUEUE_YOUNG_MS
            self._unsure_until_ms = max(self._unsure_until_ms, until_ms)
        self._ahead_ms = ahead_ms
        self._learned_at_ms = now_ms - ahead_ms

    def ahead_ms(self, mono_ms: int) -> int | None:
        """Return how far the store's time is ahead, if it is known well enough to compute ages."""
        ahead_ms = self._ahead_ms
        if ahead_ms is None or mono_ms + ahead_ms <= self._unsure_until_ms:
            return None
        return ahead_ms

    def is_fresh(self, mono_ms: int) -> bool:
        """Return whether the store's time was read recently enough."""
        return mono_ms - self._learned_at_ms <= STORE_TIME_KEPT_MS
