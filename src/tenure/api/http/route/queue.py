"""The operations on queues."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType, field

from tenure.api.http.body import Body, EmptyBody, given_or
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped, ScopedPageQuery
from tenure.api.http.view import NextPageToken, View, page_fields
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.core.task.record import TaskState
from tenure.engine.access import command as c
from tenure.engine.read import query
from tenure.engine.read.query import QueueView
from tenure.errors import InvalidArgument

_QUEUE: Final = "/v1/queues/{queue}"


class QueueBody(Body, frozen=True):
    """Pause and limit of a queue; fields that are not given do not change."""

    paused: bool | UnsetType = UNSET
    concurrency_max: (
        Annotated[int, Meta(ge=0, le=2**31 - 1, description="0 means no limit")] | UnsetType
    ) = UNSET


class QueueItem(View, frozen=True):
    """A queue: pause, limit, and its live tasks by state and by type and state."""

    name: str
    paused: bool
    concurrency_max: int
    counts: dict[str, int] = field(default_factory=dict)
    types: dict[str, dict[str, int]] = field(default_factory=dict)
    is_count_exact: Annotated[
        bool, Meta(description="False when counting stopped: there are at least so many tasks")
    ] = True


class QueueListView(View, frozen=True):
    """A page of the queues that have settings or live tasks, by name."""

    queues: list[QueueItem]
    next_page_token: NextPageToken = UNSET


def _item(view: QueueView) -> QueueItem:
    """Show a queue."""
    types = {
        type_: {state.upper(): count for state, count in sorted(counts.items())}
        for type_, counts in sorted(view.counts.items())
    }
    totals = {state: view.count(state) for state in TaskState}
    return QueueItem(
        name=view.queue.name,
        paused=view.queue.is_paused,
        concurrency_max=view.queue.concurrency_max,
        counts={state.upper(): count for state, count in totals.items() if count},
        types=types,
        is_count_exact=view.is_exact,
    )


async def list_queues(call: OperationCall[ScopedPageQuery, None]) -> Answer:
    """Show a page of the queues of a namespace."""
    page = requested_page(call.engine, call.query)
    found = await query.list_queues(call.engine.store, namespace=call.namespace, page=page)
    queues = [_item(each) for each in found.items]
    return Answer(QueueListView(queues=queues, **page_fields(found)))


async def get_queue(call: OperationCall[Scoped, Any]) -> Answer:
    """Show a queue."""
    name = call.path["queue"]
    return Answer(
        _item(await query.get_queue(call.engine.store, namespace=call.namespace, name=name))
    )


async def pause_queue(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Hand out nothing more from a queue."""
    return await _set(call, is_paused=True)


async def resume_queue(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Resume a queue."""
    return await _set(call, is_paused=False)


async def set_queue(call: OperationCall[Scoped, QueueBody]) -> Answer:
    """Set pause and limit of a queue."""
    body = call.body
    if body.paused is UNSET and body.concurrency_max is UNSET:
        message = "paused or concurrencyMax must be given"
        raise InvalidArgument(message, field="body")
    return await _set(
        call,
        is_paused=given_or(body.paused, None),
        concurrency_max=given_or(body.concurrency_max, None),
    )


async def _set(
    call: OperationCall[Scoped, Any], *, is_paused: bool | None, concurrency_max: int | None = None
) -> Answer:
    command = c.SetQueue(
        namespace=call.namespace,
        name=call.path["queue"],
        is_paused=is_paused,
        concurrency_max=concurrency_max,
        actor=call.principal.key_id,
    )
    await call.engine.submit(command)
    return await get_queue(call)


_operation: Final = partial(Operation, group="Queues", query=Scoped, errors=("not_found",))
OPERATIONS: Final = (
    _operation(
        method="GET",
        path="/v1/queues",
        name="listQueues",
        summary="List the queues that have settings or live tasks.",
        handle=list_queues,
        is_list=True,
        action=Action.READ,
        query=ScopedPageQuery,
        answer=QueueListView,
    ),
    _operation(
        method="GET",
        path=_QUEUE,
        name="getQueue",
        summary="Get a queue; an unused queue is empty and has no pause and no limit.",
        handle=get_queue,
        action=Action.READ,
        answer=QueueItem,
    ),
    _operation(
        method="PUT",
        path=_QUEUE,
        name="setQueue",
        summary="Set pause and limit of a queue; fields that are not given do not change.",
        handle=set_queue,
        action=Action.OPERATE,
        body=QueueBody,
        needs_body=True,
        answer=QueueItem,
        example='{"concurrencyMax": 10}',
    ),
    _operation(
        method="POST",
        path=f"{_QUEUE}/pause",
        name="pauseQueue",
        summary="Hand out nothing more from a queue; running tasks continue.",
        handle=pause_queue,
        action=Action.OPERATE,
        body=EmptyBody,
        answer=QueueItem,
    ),
    _operation(
        method="POST",
        path=f"{_QUEUE}/resume",
        name="resumeQueue",
        summary="Resume a paused queue.",
        handle=resume_queue,
        action=Action.OPERATE,
        body=EmptyBody,
        answer=QueueItem,
    ),
)
