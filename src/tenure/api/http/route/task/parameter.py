"""The query parameters of the paths of tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType, field

from tenure.api.http.parameter import CountedPageQuery, Label, Scoped, chosen, labels_of, name_of
from tenure.api.http.route.task.body import instant_ms
from tenure.api.http.wait import whole_wait_ms
from tenure.core.filter import TaskFilter, TaskSearch
from tenure.core.limits import LONG_POLL_MS
from tenure.core.task.record import Reason, TaskState

_STATES: Final = ", ".join(each.upper() for each in TaskState)


class TaskListQuery(CountedPageQuery, frozen=True):
    """Filter for tasks; all but queue, type and one state look into each row."""

    queue: str = ""
    type: Annotated[str, Meta(description="A type, or its beginning with a star: charge_*")] = ""
    state: Annotated[
        str, Meta(description=f"Only tasks in these states, comma-separated: {_STATES}")
    ] = ""
    worker_id: Annotated[str, Meta(description="Only tasks whose last attempt it has or had")] = ""
    label: Label = field(default_factory=list)
    error_type: Annotated[str, Meta(description="Only tasks whose last error is of this type")] = ""
    failure_reason: Annotated[str, name_of(Reason, "Only tasks that failed for this reason")] = ""
    created_after: (
        Annotated[datetime, Meta(tz=True, description="By the instant in the id")] | UnsetType
    ) = UNSET
    created_before: (
        Annotated[datetime, Meta(tz=True, description="By the instant in the id")] | UnsetType
    ) = UNSET
    id_prefix: str = ""
    id: Annotated[
        list[str], Meta(description="Only these tasks, all on one page; up to 100 times")
    ] = field(default_factory=list)

    def states(self) -> tuple[TaskState, ...]:
        """Return the states of the filter."""
        names = self.state.split(",") if self.state else []
        found = [chosen(TaskState, name, "state") for name in names]
        if None in found:
            chosen(TaskState, "?", "state")
        return tuple(each for each in found if each is not None)

    def plain(self) -> TaskFilter:
        """Return the part of the filter that an index knows."""
        states = self.states()
        only = states[0] if len(states) == 1 else None
        is_exact = not self.type.endswith("*")
        return TaskFilter(queue=self.queue, type=self.type if is_exact else "", state=only)

    def search(self) -> TaskSearch:
        """Return the whole filter."""
        after, before = self.created_after, self.created_before
        return TaskSearch(
            queue=self.queue,
            type=self.type,
            states=self.states(),
            worker_id=self.worker_id,
            labels=labels_of(self.label),
            error_type=self.error_type,
            failure_reason=chosen(Reason, self.failure_reason, "failureReason"),
            created_from_ms=None if after is UNSET else instant_ms(after, "createdAfter"),
            created_to_ms=None if before is UNSET else instant_ms(before, "createdBefore"),
            id_prefix=self.id_prefix,
        )


class TaskQuery(Scoped, frozen=True):
    """One task, optionally after it has ended."""

    wait: Annotated[
        str, Meta(description="Answer when the task has ended, or after this long: 500ms, 30s, 1m")
    ] = ""
    wait_ms: Annotated[int, Meta(description="The same in milliseconds", ge=0, le=LONG_POLL_MS)] = 0

    def whole_wait_ms(self) -> int:
        """Return how long to wait for the end of the task; 0 means not at all."""
        return whole_wait_ms(self.wait, self.wait_ms)
