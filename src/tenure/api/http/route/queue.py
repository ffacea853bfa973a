"""The operations on queues."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from tenure.api.http import view
from tenure.api.http.body import EmptyBody, QueueBody
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import QueueListQuery, Scoped
from tenure.core.access.permission import Action
from tenure.engine.access import command as c
from tenure.engine.read import query
from tenure.errors import InvalidArgument

_QUEUE: Final = "/v1/queues/{queue}"


async def list_queues(call: OperationCall[QueueListQuery, None]) -> Answer:
    """Show a page of the queues of a namespace."""
    page = query.PageRequest(
        cursor_key=call.engine.secrets.cursor_key,
        size=call.query.page_size,
        token=call.query.page_token,
    )
    found = await query.list_queues(call.engine.store, namespace=call.namespace, page=page)
    return Answer(view.queue_list(found))


async def get_queue(call: OperationCall[Scoped, None]) -> Answer:
    """Show a queue."""
    return await _shown(call)


async def _shown(
    call: OperationCall[Scoped, None]
    | OperationCall[Scoped, EmptyBody]
    | OperationCall[Scoped, QueueBody],
) -> Answer:
    found = await query.get_queue(
        call.engine.store,
        namespace=call.namespace,
        name=call.path["queue"],
    )
    return Answer(view.queue(found))


async def pause_queue(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Hand out nothing more from a queue."""
    return await _set_paused(call, is_paused=True)


async def resume_queue(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Let a queue go on."""
    return await _set_paused(call, is_paused=False)


async def _set_paused(call: OperationCall[Scoped, EmptyBody], *, is_paused: bool) -> Answer:
    command = c.SetQueue(
        namespace=call.namespace,
        name=call.path["queue"],
        is_paused=is_paused,
        actor=call.principal.key_id,
    )
    await call.engine.submit(command)
    return await _shown(call)


async def set_queue(call: OperationCall[Scoped, QueueBody]) -> Answer:
    """Set the brakes of a queue."""
    body = call.body
    if body.paused is UNSET and body.concurrency_max is UNSET:
        message = "paused or concurrencyMax must be given"
        raise InvalidArgument(message, field="body")
    command = c.SetQueue(
        namespace=call.namespace,
        name=call.path["queue"],
        is_paused=None if body.paused is UNSET else body.paused,
        concurrency_max=None if body.concurrency_max is UNSET else body.concurrency_max,
        actor=call.principal.key_id,
    )
    await call.engine.submit(command)
    return await _shown(call)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/queues",
        name="listQueues",
        group="Queues",
        summary="List the queues that have settings or live tasks.",
        handle=list_queues,
        is_list=True,
        action=Action.READ,
        query=QueueListQuery,
        answer=view.QueueListView,
        errors=("not_found",),
    ),
    Operation(
        method="GET",
        path=_QUEUE,
        name="getQueue",
        group="Queues",
        summary="Get a queue; one that nobody has used yet is empty and has no brakes.",
        handle=get_queue,
        action=Action.READ,
        query=Scoped,
        answer=view.QueueItem,
        errors=("not_found",),
    ),
    Operation(
        method="PUT",
        path=_QUEUE,
        name="setQueue",
        group="Queues",
        summary="Set the brakes of a queue; what is not given stays as it is.",
        handle=set_queue,
        action=Action.OPERATE,
        query=Scoped,
        body=QueueBody,
        needs_body=True,
        answer=view.QueueItem,
        errors=("not_found",),
        example='{"concurrencyMax": 10}',
    ),
    Operation(
        method="POST",
        path=f"{_QUEUE}/pause",
        name="pauseQueue",
        group="Queues",
        summary="Hand out nothing more from a queue; what runs goes on.",
        handle=pause_queue,
        action=Action.OPERATE,
        query=Scoped,
        body=EmptyBody,
        answer=view.QueueItem,
        errors=("not_found",),
    ),
    Operation(
        method="POST",
        path=f"{_QUEUE}/resume",
        name="resumeQueue",
        group="Queues",
        summary="Let a paused queue go on.",
        handle=resume_queue,
        action=Action.OPERATE,
        query=Scoped,
        body=EmptyBody,
        answer=view.QueueItem,
        errors=("not_found",),
    ),
)
