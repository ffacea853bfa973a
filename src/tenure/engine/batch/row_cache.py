"""Rows that this server wrote last, so that the common report needs no read.

Only those that workers hold, without large inputs, and bounded. A copy may be stale: the fenced
save tells, and then the batch runs again from the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from tenure.core.limits import CACHE_DETAILS_BYTES_MAX, CACHE_INPUT_BYTES_MAX, CACHE_ROWS_MAX
from tenure.core.task.record import Task, TaskState
from tenure.store.table.task import TaskKey

# Cancelling ones too: a run in its clean-up goes on with its steps.
_KEPT = frozenset({TaskState.DISPATCHED, TaskState.RUNNING, TaskState.CANCELLING})


def _read_like(task: Task, writes: int) -> Task:
    """Return a row as it would be read."""
    return replace(task, version=task.version + writes, input=None, unread_bytes=0)


class RowCache:
    """Holds the rows and never decides anything."""

    def __init__(self, *, is_on: bool) -> None:
        """Start empty."""
        self._is_on = is_on
        self.rows: dict[TaskKey, Task] = {}

    def saved(self, tasks: Mapping[TaskKey, Task], *, are_new: bool) -> None:
        """Keep rows as they were committed, and drop those in other states."""
        if not self._is_on:
            return
        rows = self.rows
        for key, task in tasks.items():
            details, data = task.progress.details, task.input
            if task.state not in _KEPT or (details and len(details) > CACHE_DETAILS_BYTES_MAX):
                rows.pop(key, None)
            elif are_new and (not data or len(data) <= CACHE_INPUT_BYTES_MAX):
                # A copy costs time, so a small input may stay.
                rows[key] = task
            else:
                rows[key] = _read_like(task, 0 if are_new else 1)
        self._trim()

    def _trim(self) -> None:
        rows = self.rows
        while len(rows) > CACHE_ROWS_MAX:
            # The oldest entry: dictionaries keep the order of insertion.
            del rows[next(iter(rows))]

    def forget(self, ids: Iterable[str]) -> None:
        """Drop rows by task id."""
        stale = set(ids)
        for key in [key for key in self.rows if key[1] in stale]:
            del self.rows[key]

    def clear(self) -> None:
        """Drop everything: the result of a commit is unknown."""
        self.rows.clear()
