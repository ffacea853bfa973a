"""What this server knows of the store's time before a batch reads it."""

from __future__ import annotations

from tenure.core.limits import (
    CLOCK_SET_BACK_MS_MAX,
    ENQUEUE_YOUNG_MS,
    STORE_TIME_KEPT_MS,
    YOUNG_MARGIN_MS,
)


class StoreTime:
    """How far the store's time is ahead of our monotonic clock, as the last batch has seen it.

    After the store's clock was set back, ids from before look younger than they are until it has
    caught up; for that long nothing is said.
    """

    def __init__(self) -> None:
        """Start without having seen it."""
        self._ahead_ms: int | None = None
        self._learned_at_ms = 0
        self._unsure_until_ms = 0

    def learn(self, *, now_ms: int, ahead_ms: int) -> None:
        """Take in what a batch has seen."""
        if self._ahead_ms is not None and ahead_ms < self._ahead_ms - YOUNG_MARGIN_MS:
            back_ms = min(self._ahead_ms - ahead_ms, CLOCK_SET_BACK_MS_MAX)
            until_ms = now_ms + back_ms + ENQUEUE_YOUNG_MS
            self._unsure_until_ms = max(self._unsure_until_ms, until_ms)
        self._ahead_ms = ahead_ms
        self._learned_at_ms = now_ms - ahead_ms

    def ahead_ms(self, mono_ms: int) -> int | None:
        """Return how far the store's time is ahead, if that is sure enough to tell ages by it."""
        ahead_ms = self._ahead_ms
        if ahead_ms is None or mono_ms + ahead_ms <= self._unsure_until_ms:
            return None
        return ahead_ms

    def is_fresh(self, mono_ms: int) -> bool:
        """Tell whether the store's time was read so recently that it is known."""
        return mono_ms - self._learned_at_ms <= STORE_TIME_KEPT_MS
