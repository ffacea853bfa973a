"""Filters of lists: small values, used for the statement and for the cursor."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.core import check, limits
from tenure.core.run.status import RunStatus
from tenure.core.task.record import TaskState
from tenure.core.worker.health import Health
from tenure.core.worker.record import Worker, WorkerStatus


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for tasks; an empty field matches everything."""

    queue: str = ""
    type: str = ""
    state: TaskState | None = None

    def checked(self) -> TaskFilter:
        """Return itself, or raise an error that names the invalid field."""
        _check_names(self.queue, self.type)
        return self


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for runs, which have a journal; an empty field matches everything.

    Every label has to match. A run is created at or after ``created_from_ms`` and before
    ``created_to_ms``. Its external id begins with ``external_id_prefix``.
    """

    queue: str = ""
    type: str = ""
    status: RunStatus | None = None
    labels: dict[str, str] = {}
    created_from_ms: int | None = None
    created_to_ms: int | None = None
    external_id_prefix: str = ""

    def checked(self) -> RunFilter:
        """Return itself, or raise an error that names the invalid field."""
        _check_names(self.queue, self.type)
        check.labels(self.labels)
        for field, instant_ms in (
            ("createdFrom", self.created_from_ms),
            ("createdTo", self.created_to_ms),
        ):
            if instant_ms is not None:
                check.instant_ms(instant_ms, field)
        check.text(
            self.external_id_prefix, "externalIdPrefix", bytes_max=limits.EXTERNAL_ID_BYTES_MAX
        )
        return self


def _check_names(queue: str, type_: str) -> None:
    for field, value in (("queue", queue), ("type", type_)):
        if value:
            check.name(value, field)


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

    def takes(self, worker: Worker, health: Health | None) -> bool:
        """Return whether a worker matches; the statement of the list says the same."""
        return (
            self.queue in {"", worker.queue}
            and self.status in {None, worker.status}
            and self.version in {"", worker.software_version}
            and self.health in {None, health}
            and self.labels.items() <= worker.labels.items()
        )


ALL_TASKS: Final = TaskFilter()
ALL_RUNS: Final = RunFilter()
ALL_WORKERS: Final = WorkerFilter()
_encode = msgspec.json.Encoder(order="deterministic").encode


def query_text(what: str, chosen: msgspec.Struct) -> str:
    """Return a text that differs for every list and filter: a cursor is bound to it."""
    return f"{what} {_encode(chosen).decode()}"
