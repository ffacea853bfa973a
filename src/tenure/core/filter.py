"""Filters of lists: small values, used for the statement and for the cursor."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tenure.core import check, limits
from tenure.core.run.status import RunStatus
from tenure.core.task.record import Reason, Task, TaskState
from tenure.core.worker.health import Health
from tenure.core.worker.record import Worker, WorkerStatus
from tenure.errors import InvalidArgument

_STAR: Final = "*"
_LOWEST_ID: Final = "00000000-0000-0000-0000-000000000000"
# After every id: lists go from the newest to the oldest.
_HIGHEST_ID: Final = _LOWEST_ID.replace("0", "f")
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for tasks; an empty field matches everything."""

    queue: str = ""
    type: str = ""
    state: TaskState | None = None

    def checked(self) -> TaskFilter:
        """Return itself, or raise an error that names the invalid field."""
        _check_names(self.queue, self.type)
        return self


class TaskSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A closer filter for tasks, which looks into each row; an empty field matches everything.

    A task is created at the instant in its id, from ``created_from_ms`` on and before
    ``created_to_ms``. A type that ends with a star is the beginning of one.
    """

    queue: str = ""
    type: str = ""
    states: tuple[TaskState, ...] = ()
    worker_id: str = ""
    labels: dict[str, str] = {}
    error_type: str = ""
    failure_reason: Reason | None = None
    created_from_ms: int | None = None
    created_to_ms: int | None = None
    id_prefix: str = ""

    @property
    def exact_type(self) -> str:
        """Return the type, if it is not the beginning of one."""
        return "" if self.type.endswith(_STAR) else self.type

    @property
    def first_id(self) -> str:
        """Return an id before which no task matches."""
        prefix = self.id_prefix + _LOWEST_ID[len(self.id_prefix) :]
        return max(prefix, _id_at(self.created_from_ms or 0))

    @property
    def end_id(self) -> str:
        """Return an id from which on no task matches."""
        prefix = self.id_prefix + _HIGHEST_ID[len(self.id_prefix) :]
        to_ms = self.created_to_ms
        return prefix if to_ms is None else min(prefix, _id_at(to_ms))

    def checked(self) -> TaskSearch:
        """Return itself, or raise an error that names the invalid field."""
        _check_names(self.queue, self.type.removesuffix(_STAR))
        if self.worker_id:
            check.task_id(self.worker_id, "workerId")
        check.labels(self.labels)
        check.text(self.error_type, "errorType", bytes_max=limits.TEXT_BYTES_MAX)
        for field, instant_ms in (
            ("createdAfter", self.created_from_ms),
            ("createdBefore", self.created_to_ms),
        ):
            if instant_ms is not None:
                check.instant_ms(instant_ms, field)
        if not _is_beginning(self.id_prefix):
            message = "idPrefix must be the beginning of an id, in small letters"
            raise InvalidArgument(message, field="idPrefix")
        return self

    def plain(self) -> TaskFilter | TaskSearch:
        """Return the filter that an index knows, if there is one; else itself."""
        state = self.states[0] if len(self.states) == 1 else None
        found = TaskFilter(queue=self.queue, type=self.exact_type, state=state)
        return found if searched(found) == self else self

    def takes(self, task: Task) -> bool:
        """Return whether a task matches."""
        return (
            self.first_id <= task.id < self.end_id
            and self.queue in {"", task.queue}
            and self._takes_type(task.type)
            and (not self.states or task.state in self.states)
            and self.worker_id in {"", task.worker_id}
            and self.labels.items() <= (task.labels or {}).items()
            and self._takes_failure(task)
        )

    def _takes_type(self, name: str) -> bool:
        if self.type.endswith(_STAR):
            return name.startswith(self.type.removesuffix(_STAR))
        return self.type in {"", name}

    def _takes_failure(self, task: Task) -> bool:
        error = task.progress.error
        if self.error_type and (error is None or error.type != self.error_type):
            return False
        return self.failure_reason in {None, task.progress.reason}


def searched(where: TaskFilter) -> TaskSearch:
    """Return the search that finds what a filter finds."""
    states = () if where.state is None else (where.state,)
    return TaskSearch(queue=where.queue, type=where.type, states=states)


def _id_at(at_ms: int) -> str:
    """Return the lowest id of an instant."""
    text = f"{at_ms:012x}"
    return f"{text[:8]}-{text[8:]}{_LOWEST_ID[13:]}"


def instant_of(id_: str) -> int:
    """Return the instant in an id."""
    return int(id_.replace("-", "")[:12], 16)


def _is_beginning(text: str) -> bool:
    rest = _LOWEST_ID[len(text) :]
    return len(text) <= len(_LOWEST_ID) and _ID.fullmatch(text + rest) is not None


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


class ScheduleFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for schedules by what they start; an empty field matches everything."""

    type: str = ""
    is_paused: bool | None = None

    def checked(self) -> ScheduleFilter:
        """Return itself, or raise an error that names the invalid field."""
        _check_names("", self.type)
        return self


ALL_TASKS: Final = TaskFilter()
ALL_RUNS: Final = RunFilter()
ALL_WORKERS: Final = WorkerFilter()
ALL_SCHEDULES: Final = ScheduleFilter()
_encode = msgspec.json.Encoder(order="deterministic").encode


def query_text(what: str, chosen: msgspec.Struct) -> str:
    """Return a text that differs for every list and filter: a cursor is bound to it."""
    return f"{what} {_encode(chosen).decode()}"
