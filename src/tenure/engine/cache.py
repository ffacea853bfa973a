"""Rows that this server wrote last, so that the common report needs no read.

Only ``dispatched`` and ``running`` ones, and bounded. A copy may be stale: the fenced save tells,
and then the batch runs again from the database.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tenure.core.limits import CACHE_ROWS_MAX
from tenure.core.task_record import Task, TaskState
from tenure.store.table import TaskKey

_KEPT = (TaskState.DISPATCHED, TaskState.RUNNING)


class RowCache:
    """The rows and nothing else; it never decides."""

    def __init__(self, *, is_on: bool) -> None:
        """Start empty."""
        self._is_on = is_on
        self.rows: dict[TaskKey, Task] = {}

    def saved(self, key: TaskKey, task: Task, *, is_new: bool) -> None:
        """Remember a row as it was committed, or forget one that has moved on."""
        if not self._is_on:
            return
        if task.state not in _KEPT:
            self.rows.pop(key, None)
            return
        if len(self.rows) >= CACHE_ROWS_MAX and key not in self.rows:
            # The oldest entry: dictionaries keep the order of insertion.
            del self.rows[next(iter(self.rows))]
        self.rows[key] = task if is_new else replace(task, version=task.version + 1)

    def forget(self, ids: Iterable[str]) -> None:
        """Forget rows by task id."""
        stale = set(ids)
        for key in [key for key in self.rows if key[1] in stale]:
            del self.rows[key]

    def clear(self) -> None:
        """Forget everything: nobody knows what was committed."""
        self.rows.clear()
