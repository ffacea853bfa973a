"""Paths of the API that are not implemented yet: they answer ``501``."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tenure.api.http.operation import Operation, OperationCall
from tenure.api.http.parameter import NoQuery
from tenure.core.access.permission import Action
from tenure.errors import Unimplemented


def unimplemented() -> Unimplemented:
    """Return the answer for all of them."""
    return Unimplemented("This server does not offer this path yet. Use a newer server.")


async def refuse(call: OperationCall[NoQuery, None]) -> Response:
    """Refuse: this server does not have it."""
    del call
    raise unimplemented()


_PATHS: Final = (
    ("GET", "/v1/schedules", "listSchedules", "List schedules."),
    ("POST", "/v1/schedules", "createSchedule", "Create a schedule."),
    ("GET", "/v1/schedules/{scheduleId}", "getSchedule", "Get a schedule."),
    ("PUT", "/v1/schedules/{scheduleId}", "setSchedule", "Change a schedule."),
    ("DELETE", "/v1/schedules/{scheduleId}", "deleteSchedule", "Delete a schedule."),
    ("POST", "/v1/schedules/{scheduleId}/pause", "pauseSchedule", "Pause a schedule."),
    ("POST", "/v1/schedules/{scheduleId}/resume", "resumeSchedule", "Resume a schedule."),
    ("POST", "/v1/schedules/{scheduleId}/trigger", "triggerSchedule", "Fire a schedule now."),
    ("GET", "/v1/schedules/{scheduleId}/fires", "previewFires", "Preview the next fires."),
)


def _action(method: str) -> Action:
    """Return the needed permission, so that callers without it do not learn of the path."""
    if method == "GET":
        return Action.READ
    return Action.SUBMIT


OPERATIONS: Final = tuple(
    Operation(
        method=method,
        path=path,
        name=name,
        group="Later",
        summary=summary,
        handle=refuse,
        action=_action(method),
        is_built=False,
        errors=("unimplemented",),
    )
    for method, path, name, summary in _PATHS
)
