"""The table of all operations, and the search for the operation of a request."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from re import Pattern
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

import tenure
from tenure.api.http import docs, openapi
from tenure.api.http.edge.error import JSON, MethodNotAllowed
from tenure.api.http.operation import Operation, OperationCall
from tenure.api.http.parameter import NoQuery
from tenure.api.http.route import (
    api_key,
    audit,
    diagnosis,
    event,
    health,
    namespace,
    overview,
    queue,
    statistics,
    worker,
    worker_look,
)
from tenure.api.http.route.callback import route as callback
from tenure.api.http.route.endpoint import route as endpoint
from tenure.api.http.route.run import explain as run_explain
from tenure.api.http.route.run import route as run
from tenure.api.http.route.run import step
from tenure.api.http.route.schedule import route as schedule
from tenure.api.http.route.task import explain
from tenure.api.http.route.task import route as task
from tenure.api.metrics.metric import metrics_response
from tenure.core.access.permission import Action
from tenure.errors import NotFound


async def get_openapi(call: OperationCall[NoQuery, None]) -> Response:
    """Answer with the description of the API."""
    del call
    return Response(msgspec.json.encode(_document()), media_type=JSON)


async def get_docs(call: OperationCall[NoQuery, None]) -> Response:
    """Answer with the description for people."""
    del call
    return docs.page(OPERATIONS, _document())


async def get_metrics(call: OperationCall[NoQuery, None]) -> Response:
    """Answer with counters and the last sample; nothing is read for it."""
    return metrics_response(call.context.metrics, Request(call.scope))


_operation: Final = functools.partial(Operation, method="GET", group="Server", action=Action.READ)
OPERATIONS: Final = (
    *task.OPERATIONS,
    *explain.OPERATIONS,
    *run.OPERATIONS,
    *step.OPERATIONS,
    *run_explain.OPERATIONS,
    *schedule.OPERATIONS,
    *callback.OPERATIONS,
    *endpoint.OPERATIONS,
    *worker.OPERATIONS,
    *worker_look.OPERATIONS,
    *overview.FLEET_OPERATIONS,
    *queue.OPERATIONS,
    *namespace.OPERATIONS,
    *api_key.OPERATIONS,
    *audit.OPERATIONS,
    *event.OPERATIONS,
    *overview.OPERATIONS,
    *statistics.OPERATIONS,
    *diagnosis.OPERATIONS,
    *health.OPERATIONS,
    _operation(
        path="/metrics",
        name="getMetrics",
        summary="Metrics for Prometheus, of all namespaces.",
        handle=get_metrics,
        is_whole=True,
        is_probe=True,
        media_type="text/plain",
    ),
    _operation(
        path="/openapi.json",
        name="getOpenApi",
        summary="This API as an OpenAPI 3.1 document.",
        handle=get_openapi,
    ),
    _operation(
        path="/docs",
        name="getDocs",
        summary="This API as one page for people, which works offline.",
        handle=get_docs,
        media_type="text/html",
    ),
)


@functools.cache
def _document() -> openapi.Schema:
    return openapi.document(OPERATIONS, tenure.__version__)


_ID: Final = re.compile(r"\{\w+\}")
_ID_PATTERN: Final = r"[A-Za-z0-9._~-]+"


class Table:
    """Finds operations by method and exact path."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        """Compile the paths."""
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            methods = by_path.setdefault(operation.path, {})
            assert operation.method not in methods, operation.path
            methods[operation.method] = operation
        self._exempt = frozenset(
            (method, each.path.encode())
            for each in operations
            if each.action is None and not each.has_task_token
            for method in (each.method, "HEAD")
        )
        # Exactly these: whatever is not one needs an API key before anybody looks what it is.
        self._with_token = [
            (each.method, re.compile(_ID.sub(_ID_PATTERN, each.path).encode()))
            for each in operations
            if each.has_task_token
        ]
        self._plain = {path: each for path, each in by_path.items() if "{" not in path}
        self._patterns: list[tuple[Pattern[str], dict[str, Operation]]] = [
            (compile_path(path)[0], each) for path, each in by_path.items() if "{" in path
        ]

    def is_exempt(self, method: str, raw_path: bytes) -> bool:
        """Return whether a request needs no key: its path is exactly one of those."""
        return (method, raw_path) in self._exempt

    def has_task_token(self, method: str, raw_path: bytes) -> bool:
        """Return whether a request is authenticated by a task token alone."""
        return any(
            each == method and pattern.fullmatch(raw_path) for each, pattern in self._with_token
        )

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Return the operation and the values of the names in its path."""
        methods, names = self._match(path)
        operation = methods.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise MethodNotAllowed([*methods, *(["HEAD"] if "GET" in methods else [])])
        return operation, names

    def _match(self, path: str) -> tuple[dict[str, Operation], dict[str, str]]:
        plain = self._plain.get(path)
        if plain is not None:
            return plain, {}
        for pattern, methods in self._patterns:
            found = pattern.match(path)
            if found is not None:
                return methods, found.groupdict()
        raise NotFound("This path does not exist. /docs lists all paths.")
