"""The operations on queues and namespaces."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from msgspec import UNSET

from tenure.api.http import view
from tenure.api.http.body import EmptyBody, NamespaceBody, QueueBody
from tenure.api.http.operation import Answer, Call, Operation
from tenure.api.http.parameter import NamespaceListQuery, NoQuery, Scoped
from tenure.api.scope import scope
from tenure.engine import command as c
from tenure.engine import query
from tenure.errors import InvalidArgument

_QUEUE: Final = "/v1/queues/{queue}"


async def list_queues(call: Call[Scoped, None]) -> Answer:
    """Show the queues of a namespace."""
    found = await query.list_queues(call.engine.store, namespace=call.namespace)
    return Answer(view.QueueListView(queues=[view.queue(each) for each in found]))


async def get_queue(call: Call[Scoped, None]) -> Answer:
    """Show a queue."""
    return await _shown(call)


async def _shown(
    call: Call[Scoped, None] | Call[Scoped, EmptyBody] | Call[Scoped, QueueBody],
) -> Answer:
    found = await query.get_queue(
        call.engine.store,
        namespace=call.namespace,
        name=call.path["queue"],
    )
    return Answer(view.queue(found))


async def pause_queue(call: Call[Scoped, EmptyBody]) -> Answer:
    """Hand out nothing more from a queue."""
    name = call.path["queue"]
    await call.engine.submit(c.SetQueue(namespace=call.namespace, name=name, is_paused=True))
    return await _shown(call)


async def resume_queue(call: Call[Scoped, EmptyBody]) -> Answer:
    """Let a queue go on."""
    name = call.path["queue"]
    await call.engine.submit(c.SetQueue(namespace=call.namespace, name=name, is_paused=False))
    return await _shown(call)


async def set_queue(call: Call[Scoped, QueueBody]) -> Answer:
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
    )
    await call.engine.submit(command)
    return await _shown(call)


async def list_namespaces(call: Call[NamespaceListQuery, None]) -> Answer:
    """Show a page of namespaces."""
    page = query.PageRequest(
        cursor_key=call.engine.secrets.cursor_key,
        size=call.query.page_size,
        token=call.query.page_token,
    )
    return Answer(view.namespace_list(await query.list_namespaces(call.engine.store, page=page)))


async def create_namespace(call: Call[NoQuery, NamespaceBody]) -> Answer:
    """Create a namespace."""
    name = call.body.name
    if not name:
        message = "name must be tenant/workspace or a bare name"
        raise InvalidArgument(message, field="name")
    made = await call.engine.submit(c.CreateNamespace(name=scope(name, "name")))
    return Answer(view.NamespaceItem(name=made), HTTPStatus.CREATED)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/queues",
        name="listQueues",
        group="Queues",
        summary="List the queues that have settings or live tasks.",
        handle=list_queues,
        query=Scoped,
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
        query=Scoped,
        body=EmptyBody,
        answer=view.QueueItem,
        errors=("not_found",),
    ),
    Operation(
        method="GET",
        path="/v1/namespaces",
        name="listNamespaces",
        group="Namespaces",
        summary="List the namespaces of this server.",
        handle=list_namespaces,
        query=NamespaceListQuery,
        answer=view.NamespaceListView,
    ),
    Operation(
        method="POST",
        path="/v1/namespaces",
        name="createNamespace",
        group="Namespaces",
        summary="Create a namespace.",
        handle=create_namespace,
        body=NamespaceBody,
        needs_body=True,
        answer=view.NamespaceItem,
        status=HTTPStatus.CREATED,
        errors=("already_exists",),
        example='{"name": "acme"}',
    ),
)
