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


def _remembered(task: Task, writes: int) -> Task:
    """Return a row as it was written; a copy costs time, so a small input may stay in a new one."""
    is_small = task.input is None or len(task.input) <= CACHE_INPUT_BYTES_MAX
    if not writes and is_small and not task.unread_bytes:
        return task
    return replace(task, version=task.version + writes, input=None, unread_bytes=0)


def _has_large_details(task: Task) -> bool:
    details = task.progress.details
    return details is not None and len(details) > CACHE_DETAILS_BYTES_MAX


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
            if task.state not in _KEPT or _has_large_details(task):
                rows.pop(key, None)
            else:
                rows[key] = _remembered(task, 0 if are_new else 1)
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
