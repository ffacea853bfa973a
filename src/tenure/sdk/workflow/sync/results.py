"""The results of a map, for bodies that are plain functions."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from tenure.sdk.workflow.results import Results
from tenure.sdk.workflow.sync.body_thread import BodyThread

R_co = TypeVar("R_co", covariant=True)


class SyncResults(Generic[R_co]):
    """What the items of a map have returned; pages are read when they are asked for.

    >>> done = ctx.map(resize, images, on_error="collect")
    >>> for image, thumbnail in done:
    ...     ...

    With ``on_error="collect"`` the value of an item that failed is its ``TaskFailed``. A step may
    take the results as an argument, and reads them there: with ``async for`` if it is async.
    """

    def __init__(self, thread: BodyThread, results: Results[R_co]) -> None:
        """Use ``ctx.map`` instead."""
        self._thread = thread
        self._results = results

    def __repr__(self) -> str:
        return repr(self._results)

    @property
    def total(self) -> int:
        """How many items there were."""
        return self._results.total

    @property
    def failed(self) -> int:
        """How many of them failed or were cancelled."""
        return self._results.failed

    @property
    def succeeded(self) -> int:
        """How many items succeeded."""
        return self._results.succeeded

    def __iter__(self) -> Iterator[tuple[Any, R_co]]:
        """Iterate over items and their values, in the order of the items."""
        if not self._thread.is_here:
            yield from self._results
            return
        after = 0
        while after < self.total:
            page = self._thread.run(functools.partial(self._results.read, after))
            yield from page
            after += len(page)

    def __aiter__(self) -> AsyncIterator[tuple[Any, R_co]]:
        """Iterate in the same way in a step that is async."""
        return self._results.__aiter__()

    def list(self) -> list[R_co]:
        """Return all values, in the order of the items.

        >>> thumbnails = done.list()
        """
        return [value for _, value in self]
