"""Whether the process runs, and whether it can work."""

from __future__ import annotations

import asyncio
from typing import Final

from tenure.api.http.edge.error import RETRY_AFTER_MS
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import NoQuery
from tenure.api.http.view import View
from tenure.core.limits import READY_MS_MAX
from tenure.engine.read import access as access_read
from tenure.engine.read import query
from tenure.errors import Unavailable


class HealthView(View, frozen=True):
    """The server runs, or is ready."""

    status: str


async def is_up(call: OperationCall[NoQuery, None]) -> Answer:
    """Answer without a check."""
    del call
    return Answer(HealthView(status="up"))


async def is_ready(call: OperationCall[NoQuery, None]) -> Answer:
    """Answer while the server accepts requests, its lanes commit and its store can be read."""
    reason = call.context.readiness.problem()
    if reason is not None:
        raise _not_ready("The server cannot accept requests now.", reason)
    page = query.PageRequest(cursor_key=call.engine.secrets.cursor_key, size=1)
    try:
        async with asyncio.timeout(READY_MS_MAX / 1000):
            await access_read.list_namespaces(call.engine.store, page=page)
    except TimeoutError as error:
        raise _not_ready("The store did not answer in time.", "store_slow") from error
    return Answer(HealthView(status="ready"))


def _not_ready(message: str, reason: str) -> Unavailable:
    return Unavailable(message, reason=reason, retry_after_ms=RETRY_AFTER_MS)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/healthz",
        name="isUp",
        group="Server",
        summary="The process runs.",
        handle=is_up,
        action=None,
        is_probe=True,
        answer=HealthView,
    ),
    Operation(
        method="GET",
        path="/readyz",
        name="isReady",
        group="Server",
        summary="The server can work. 503 while its store is not available or full, or it stops.",
        handle=is_ready,
        action=None,
        is_probe=True,
        answer=HealthView,
    ),
)
