"""Where the journals end of runs whose rows are remembered, so that a step needs no read.

An end counts only as long as the copy of the row beside it is used. One that is stale meets a
position that is taken, and then the batch runs again from the database.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import CACHE_ROWS_MAX
from tenure.store.table.task import TaskKey


class JournalCache:
    """The ends and nothing else; it never decides."""

    def __init__(self) -> None:
        """Start empty."""
        self.ends: dict[TaskKey, JournalEnd] = {}

    def saved(self, ends: Mapping[TaskKey, JournalEnd], cached: Container[TaskKey]) -> None:
        """Remember the ends that a batch has committed, of runs whose rows are remembered."""
        for key, end in ends.items():
            self.ends.pop(key, None)
            if key in cached:
                self.ends[key] = end
        while len(self.ends) > CACHE_ROWS_MAX:
            # The oldest entry: dictionaries keep the order of insertion.
            del self.ends[next(iter(self.ends))]

    def forget(self, ids: Iterable[str]) -> None:
        """Forget ends by the ids of their runs."""
        stale = set(ids)
        for key in [key for key in self.ends if key[1] in stale]:
            del self.ends[key]

    def drop(self, keys: Iterable[TaskKey]) -> None:
        """Forget the ends of runs to which another server has appended."""
        for key in keys:
            self.ends.pop(key, None)

    def clear(self) -> None:
        """Forget everything: nobody knows what was committed."""
        self.ends.clear()
