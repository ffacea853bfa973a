"""Which attempts a worker has received: none starts twice, and none after a higher one."""

from __future__ import annotations

from typing import Final

# A repeated delivery comes soon after the first. A busy worker ends 1,000 tasks per second.
SEEN_MAX: Final = 10_000


class SeenAttempts:
    """The highest attempt of each task that was delivered, of the last 10,000 tasks or more."""

    def __init__(self) -> None:
        self._new: dict[str, int] = {}
        self._old: dict[str, int] = {}

    def take(self, task_id: str, attempt: int) -> bool:
        """Record a delivery; False if this attempt, or a higher one, was delivered before."""
        new = self._new
        if (new.get(task_id) or self._old.get(task_id, 0)) >= attempt:
            return False
        if len(new) >= SEEN_MAX:
            self._old, new = new, {}
            self._new = new
        new[task_id] = attempt
        return True
