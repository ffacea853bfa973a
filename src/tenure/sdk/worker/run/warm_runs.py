"""Runs that wait and are still in memory: they go on where they were, without a re-run."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Warm(Protocol):
    """A run that can be put aside."""

    def put_aside(self) -> None:
        """End its body; nothing it does counts any more."""
        ...


W = TypeVar("W", bound=Warm)


class WarmRuns(Generic[W]):
    """At most ``limit`` runs by their ids; the one that waits for the longest goes first."""

    def __init__(self, limit: int) -> None:
        """Keep none yet."""
        self._limit = limit
        self._runs: OrderedDict[str, W] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def keep(self, run_id: str, run: W) -> None:
        """Keep a run that waits, and put aside what is too much."""
        self._runs[run_id] = run
        while len(self._runs) > self._limit:
            _, oldest = self._runs.popitem(last=False)
            oldest.put_aside()

    def take(self, run_id: str) -> W | None:
        """Return a run that is handed out again, if it is here."""
        return self._runs.pop(run_id, None)

    def put_all_aside(self) -> None:
        """Forget all of them."""
        while self._runs:
            self._runs.popitem()[1].put_aside()
