"""The query parameters of the paths of tasks."""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta

from tenure.api.http.parameter import CountedPageQuery, Scoped, name_of
from tenure.core.limits import LONG_POLL_MS
from tenure.core.task.record import TaskState
from tenure.errors import InvalidArgument

_WAIT: Final = re.compile(r"([0-9]{1,7})(ms|s|m)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000}


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
        if not self.wait:
            return self.wait_ms
        found = _WAIT.fullmatch(self.wait)
        wait_ms = int(found[1]) * _UNITS_MS[found[2]] if found else LONG_POLL_MS + 1
        if self.wait_ms or wait_ms > LONG_POLL_MS:
            message = f"wait must be like 30s, at most {LONG_POLL_MS // 1000}s, without waitMs"
            raise InvalidArgument(message, field="wait")
        return wait_ms
