"""The query parameters of the paths of tasks."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tenure.api.http.parameter import CountedPageQuery, Scoped, name_of
from tenure.api.http.wait import whole_wait_ms
from tenure.core.limits import LONG_POLL_MS
from tenure.core.task.record import TaskState


class TaskListQuery(CountedPageQuery, frozen=True):
    """Filter for tasks."""

    queue: str = ""
    type: str = ""
    state: Annotated[str, name_of(TaskState, "Only tasks in this state")] = ""


class TaskQuery(Scoped, frozen=True):
    """One task, optionally after it has ended."""

    wait: Annotated[
        str, Meta(description="Answer when the task has ended, or after this long: 500ms, 30s, 1m")
    ] = ""
    wait_ms: Annotated[int, Meta(description="The same in milliseconds", ge=0, le=LONG_POLL_MS)] = 0

    def whole_wait_ms(self) -> int:
        """Return how long to wait for the end of the task; 0 means not at all."""
        return whole_wait_ms(self.wait, self.wait_ms)
