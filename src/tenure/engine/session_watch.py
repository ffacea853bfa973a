"""Sessions that end: one is a crash, many at once are the network's fault or ours."""

from __future__ import annotations

from collections import deque

from tenure.core.lease import is_mass_close
from tenure.core.limits import SUSPECT_GRACE_MS


class SessionWatch:
    """Remembers for three seconds whose session was closed by its peer."""

    def __init__(self) -> None:
        """Start with nobody."""
        self._closed: deque[tuple[int, str]] = deque()

    def closed(self, worker_id: str, *, mono_ms: int, open_count: int) -> frozenset[str]:
        """Note a closed session; return whom to spare, empty while closings are few."""
        self._closed.append((mono_ms, worker_id))
        while self._closed[0][0] <= mono_ms - SUSPECT_GRACE_MS:
            self._closed.popleft()
        if is_mass_close(closed_count=len(self._closed), open_count=open_count):
            return frozenset(worker for _, worker in self._closed)
        return frozenset()
