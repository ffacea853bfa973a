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
    ("POST", "/v1/tasks/{taskId}/started", "reportStarted", "An endpoint has begun its task."),
    ("POST", "/v1/tasks/{taskId}/heartbeat", "reportProgress", "An endpoint makes progress."),
    ("POST", "/v1/tasks/{taskId}/completed", "reportCompleted", "An endpoint has ended its task."),
    ("GET", "/v1/endpoints", "listEndpoints", "List endpoints."),
    ("POST", "/v1/endpoints", "createEndpoint", "Create an endpoint."),
    ("GET", "/v1/endpoints/{endpoint}", "getEndpoint", "Get an endpoint."),
    ("PUT", "/v1/endpoints/{endpoint}", "setEndpoint", "Change an endpoint."),
    ("DELETE", "/v1/endpoints/{endpoint}", "deleteEndpoint", "Delete an endpoint."),
)


def _action(method: str, path: str) -> Action:
    """Return the needed permission, so that callers without it do not learn of the path."""
    if method == "GET":
        return Action.READ
    return Action.OPERATE if path.startswith("/v1/endpoints") else Action.SUBMIT


OPERATIONS: Final = tuple(
    Operation(
        method=method,
        path=path,
        name=name,
        group="Later",
        summary=summary,
        handle=refuse,
        action=_action(method, path),
        is_built=False,
        errors=("unimplemented",),
    )
    for method, path, name, summary in _PATHS
)
