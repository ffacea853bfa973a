"""Runs that wait and are still in memory: they go on where they were, without a re-run."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from tenure.core.limits import WARM_THREADS


class Warm(Protocol):
    """A run that can be put aside."""

    @property
    def has_thread(self) -> bool:
        """Whether it keeps a thread while it waits."""
        ...

    def put_aside(self) -> None:
        """End its body; nothing it does counts any more."""
        ...


W = TypeVar("W", bound=Warm)


class WarmRuns(Generic[W]):
    """At most ``limit`` runs by their ids; the one that waits for the longest goes first.

    At most ``threads`` of them keep a thread.
    """

    def __init__(self, limit: int, threads: int = WARM_THREADS) -> None:
        """Keep none yet."""
        self._limit = limit
        self._threads = threads
        self._runs: OrderedDict[str, W] = OrderedDict()
        # The ids of those that keep a thread, in the same order.
        self._with_thread: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def keep(self, run_id: str, run: W) -> None:
        """Keep a run that waits, and put aside what is too much."""
        self._runs[run_id] = run
        if run.has_thread:
            self._with_thread[run_id] = None
        if len(self._with_thread) > self._threads:
            self._drop(next(iter(self._with_thread)))
        while len(self._runs) > self._limit:
            self._drop(next(iter(self._runs)))

    def take(self, run_id: str) -> W | None:
        """Return a run that is handed out again, if it is here."""
        self._with_thread.pop(run_id, None)
        return self._runs.pop(run_id, None)

    def put_all_aside(self) -> None:
        """Forget all of them."""
        while self._runs:
            self._drop(next(reversed(self._runs)))

    def _drop(self, run_id: str) -> None:
        run = self.take(run_id)
        assert run is not None
        run.put_aside()
