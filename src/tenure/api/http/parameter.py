"""What may stand behind the question mark of each path."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tenure.core.limits import LONG_POLL_MS, PAGE_SIZE_MAX, PAGE_TOKEN_LENGTH_MAX
from tenure.core.task.record import TaskState
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus
from tenure.errors import InvalidArgument

_WAIT: Final = re.compile(r"([0-9]{1,7})(ms|s|m)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000}


def _one_of(values: type[TaskState | WorkerStatus | Health], text: str) -> Meta:
    return Meta(description=text, extra_json_schema={"enum": [each.upper() for each in values]})


class NoQuery(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename="camel",
):
    """No parameters."""


class Scoped(NoQuery, frozen=True):
    """A path inside a namespace."""

    namespace: Annotated[
        str,
        Meta(description="tenant/workspace, or a bare name; the header Tenure-Namespace as well"),
    ] = ""


class QueueListQuery(Scoped, frozen=True):
    """Which page of the queues."""

    page_size: Annotated[int, Meta(description=f"0 is 20, at most {PAGE_SIZE_MAX}", ge=0)] = 0
    page_token: Annotated[
        str,
        Meta(description="nextPageToken of the page before", max_length=PAGE_TOKEN_LENGTH_MAX),
    ] = ""


class Paged(QueueListQuery, frozen=True):
    """A list."""

    total_count: Annotated[bool, Meta(description="Also count all that match")] = False


class TaskListQuery(Paged, frozen=True):
    """Which tasks."""

    queue: str = ""
    type: str = ""
    state: Annotated[str, _one_of(TaskState, "Only tasks in this state")] = ""


class WorkerListQuery(Paged, frozen=True):
    """Which workers."""

    queue: str = ""
    status: Annotated[str, _one_of(WorkerStatus, "Only workers of this status")] = ""
    health: Annotated[str, _one_of(Health, "Only active workers of this health")] = ""
    version: Annotated[str, Meta(description="Only workers of this software version")] = ""
    label: Annotated[
        list[str],
        Meta(description="key=value; may be repeated, and each has to match"),
    ] = []


class NamespaceListQuery(NoQuery, frozen=True):
    """Which page of the namespaces."""

    page_size: Annotated[int, Meta(description=f"0 is 20, at most {PAGE_SIZE_MAX}", ge=0)] = 0
    page_token: Annotated[str, Meta(max_length=PAGE_TOKEN_LENGTH_MAX)] = ""


class TaskQuery(Scoped, frozen=True):
    """One task, perhaps once it has ended."""

    wait: Annotated[
        str,
        Meta(description="Answer when the task has ended, or after this long: 500ms, 30s, 1m"),
    ] = ""
    wait_ms: Annotated[
        int,
        Meta(description="The same in milliseconds", ge=0, le=LONG_POLL_MS),
    ] = 0

    def whole_wait_ms(self) -> int:
        """Return how long to wait for the end of the task; 0 is not at all."""
        if not self.wait:
            return self.wait_ms
        found = _WAIT.fullmatch(self.wait)
        wait_ms = int(found[1]) * _UNITS_MS[found[2]] if found else LONG_POLL_MS + 1
        if self.wait_ms or wait_ms > LONG_POLL_MS:
            message = f"wait must be such as 30s, at most {LONG_POLL_MS // 1000}s, without waitMs"
            raise InvalidArgument(message, field="wait")
        return wait_ms
