"""The time of the server, as far as a worker can tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# Two clocks drift apart by less than this part of the time that passes.
_DRIFT: Final = 0.0005


class ServerClock:
    """What the time of the server is at least: each message of it was made before it came."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet; ``clock`` is that of this process, in seconds."""
        self._clock = clock
        self._offset_ms: float | None = None
        self._heard_at_ms = 0.0

    def heard(self, at_ms: int) -> None:
        """Take an instant that a message of the server names."""
        now_ms = self._clock() * 1_000
        offset_ms = at_ms - now_ms
        if self._offset_ms is not None:
            # The message that came fastest tells most.
            known_ms = self._offset_ms - (now_ms - self._heard_at_ms) * _DRIFT
            offset_ms = max(offset_ms, known_ms)
        self._offset_ms, self._heard_at_ms = offset_ms, now_ms

    @property
    def now_ms(self) -> int:
        """The time of the server; 0 before it was heard of."""
        if self._offset_ms is None:
            return 0
        return int(self._clock() * 1_000 + self._offset_ms)

    def in_s(self, at_ms: int) -> float:
        """Return how long it is until an instant of the server."""
        return max(0.0, (at_ms - self.now_ms) / 1_000)
