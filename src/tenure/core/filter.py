"""Filters of lists: small values, used for the statement and for the cursor."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.core import check, limits
from tenure.core.task.record import TaskState
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for tasks; an empty field matches everything."""

    queue: str = ""
    type: str = ""
    state: TaskState | None = None

    def checked(self) -> TaskFilter:
        """Return itself, or raise an error that names the invalid field."""
        for field, value in (("queue", self.queue), ("type", self.type)):
            if value:
                check.name(value, field)
        return self


class RunFilter(TaskFilter, frozen=True, kw_only=True):
    """Which runs are wanted: tasks that have a journal."""


class WorkerFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for workers; an empty field matches everything, and every label has to match.

    An offline worker has no health, so a filter on health never matches it.
    """

    queue: str = ""
    status: WorkerStatus | None = None
    version: str = ""
    labels: dict[str, str] = {}
    health: Health | None = None

    def checked(self) -> WorkerFilter:
        """Return itself, or raise an error that names the invalid field."""
        if self.queue:
            check.name(self.queue, "queue")
        check.text(self.version, "version", bytes_max=limits.TEXT_BYTES_MAX)
        check.labels(self.labels)
        return self


ALL_TASKS: Final = TaskFilter()
ALL_RUNS: Final = RunFilter()
ALL_WORKERS: Final = WorkerFilter()
_encode = msgspec.json.Encoder(order="deterministic").encode


def query_text(what: str, chosen: msgspec.Struct) -> str:
    """Return a text that differs for every list and filter: a cursor is bound to it."""
    return f"{what} {_encode(chosen).decode()}"
