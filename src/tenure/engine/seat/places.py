"""Places: how many calls a server makes at a time. Workers that fail have places of their own."""

from __future__ import annotations

import asyncio

from tenure.core.limits import SERVED_FAILING_PLACES_MAX, SERVED_PLACES_MAX


class Places:
    """Two limits, so that workers that hang never use up the places of the others."""

    def __init__(
        self, *, most: int = SERVED_PLACES_MAX, failing_most: int = SERVED_FAILING_PLACES_MAX
    ) -> None:
        """Start with all places free."""
        self._healthy = asyncio.Semaphore(most)
        self._failing = asyncio.Semaphore(failing_most)

    def of(self, *, is_failing: bool) -> asyncio.Semaphore:
        """Return the places for a worker whose last call failed, or for the others."""
        return self._failing if is_failing else self._healthy
