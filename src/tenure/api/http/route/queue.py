"""The operations on queues."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType, field, structs

from tenure.api.http.body import DryRunBody, given_or
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped, ScopedPageQuery
from tenure.api.http.view import (
    Consequences,
    Instant,
    NextPageToken,
    View,
    consequences,
    instant,
    page_fields,
)
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.engine import rehearsal
from tenure.engine.access import command as c
from tenure.engine.read import queue as queue_read
from tenure.engine.read.queue import QueueReport
from tenure.engine.statistics.figures import Figures, percentiles_ms
from tenure.errors import InvalidArgument

_QUEUE: Final = "/v1/queues/{queue}"


class QueueBody(DryRunBody, frozen=True):
    """Pause and limit of a queue; fields that are not given do not change."""

    paused: bool | UnsetType = UNSET
    concurrency_max: (
        Annotated[int, Meta(ge=0, le=2**31 - 1, description="0 means no limit")] | UnsetType
    ) = UNSET


class PerMinuteView(View, frozen=True):
    """What happened in the last minute, as this server has counted it."""

    enqueued: int
    started: int
    succeeded: int
    failed: int
    cancelled: int
    lost: int


class WaitView(View, frozen=True):
    """How long the tasks waited that were started in the last minute: about so many ms at most."""

    p50: int
    p95: int
    p99: int


class QueueItem(View, frozen=True):
    """A queue: pause, limit, and its live tasks by state and by type and state."""

    name: str
    paused: bool
    concurrency_max: int
    per_minute: PerMinuteView
    counts: dict[str, int] = field(default_factory=dict)
    types: dict[str, dict[str, int]] = field(default_factory=dict)
    is_count_exact: Annotated[
        bool, Meta(description="False when counting stopped: there are at least so many tasks")
    ] = True
    is_type_count_exact: Annotated[
        bool, Meta(description="False when only counts are those of the sample, types at least")
    ] = True
    held: Annotated[int, Meta(description="Tasks that workers hold, when sampled")] | UnsetType = (
        UNSET
    )
    worker_count: Annotated[int, Meta(description="Active workers, when sampled")] | UnsetType = (
        UNSET
    )
    slots: Annotated[int, Meta(description="Of the active workers together")] | UnsetType = UNSET
    oldest_waiting_ms: (
        Annotated[int, Meta(description="0 if no task waits; when sampled")] | UnsetType
    ) = UNSET
    sample_at: (
        Annotated[Instant, Meta(description="Missing before the first sample of this server")]
        | UnsetType
    ) = UNSET
    wait_ms: WaitView | UnsetType = UNSET
    consequences: Consequences = UNSET


class QueueListView(View, frozen=True):
    """A page of the queues that have settings or live tasks, by name."""

    queues: list[QueueItem]
    next_page_token: NextPageToken = UNSET


def per_minute(figures: Figures) -> PerMinuteView:
    """Show what happened in a minute."""
    names = PerMinuteView.__struct_fields__
    return PerMinuteView(**{name: getattr(figures, name) for name in names})


def wait_ms(figures: Figures) -> WaitView | UnsetType:
    """Show how long tasks waited, if any were started."""
    if not any(figures.wait):
        return UNSET
    p50, p95, p99 = percentiles_ms(figures.wait)
    return WaitView(p50=p50, p95=p95, p99=p99)


def _item(report: QueueReport) -> QueueItem:
    """Show a queue."""
    view, sampled = report.view, report.sampled
    types = {
        type_: {state.upper(): count for state, count in sorted(counts.items())}
        for type_, counts in sorted(view.counts.items())
    }
    sample: dict[str, Any] = {}
    if sampled is not None:
        sample = {
            "held": sampled.held_count,
            "worker_count": sampled.crew.count,
            "slots": sampled.crew.slots,
            "oldest_waiting_ms": sampled.oldest_waiting_ms,
            "sample_at": instant(sampled.at_ms),
        }
    return QueueItem(
        name=view.queue.name,
        paused=view.queue.is_paused,
        concurrency_max=view.queue.concurrency_max,
        counts={state.upper(): count for state, count in report.depths.items()},
        types=types,
        is_count_exact=report.is_exact,
        is_type_count_exact=view.is_exact,
        per_minute=per_minute(report.last_minute),
        wait_ms=wait_ms(report.last_minute),
        **sample,
    )


async def list_queues(call: OperationCall[ScopedPageQuery, None]) -> Answer:
    """Show a page of the queues of a namespace."""
    page = requested_page(call.engine, call.query)
    found = await queue_read.list_queues(call.engine, namespace=call.namespace, page=page)
    queues = [_item(each) for each in found.items]
    return Answer(QueueListView(queues=queues, **page_fields(found)))


async def get_queue(call: OperationCall[Scoped, Any]) -> Answer:
    """Show a queue."""
    name = call.path["queue"]
    return Answer(
        _item(await queue_read.get_queue(call.engine, namespace=call.namespace, name=name))
    )


async def pause_queue(call: OperationCall[Scoped, DryRunBody]) -> Answer:
    """Hand out nothing more from a queue."""
    return await _set(call, is_paused=True)


async def resume_queue(call: OperationCall[Scoped, DryRunBody]) -> Answer:
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
    if call.body.dry_run:
        found = await rehearsal.of_queue(call.engine, command)
        report = await queue_read.get_queue(
            call.engine, namespace=call.namespace, name=command.name
        )
        return Answer(structs.replace(_item(report), consequences=consequences(found)))
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
        body=DryRunBody,
        answer=QueueItem,
    ),
    _operation(
        method="POST",
        path=f"{_QUEUE}/resume",
        name="resumeQueue",
        summary="Resume a paused queue.",
        handle=resume_queue,
        action=Action.OPERATE,
        body=DryRunBody,
        answer=QueueItem,
    ),
)
