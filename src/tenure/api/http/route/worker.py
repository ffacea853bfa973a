"""The operations on workers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType, field, structs

from tenure.api.http.body import DryRunBody, Duration, given_or
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import CountedPageQuery, Label, Scoped, chosen, labels_of, name_of
from tenure.api.http.view import (
    Consequences,
    Instant,
    IsTotalExact,
    NextPageToken,
    TotalCount,
    View,
    consequences,
    instant,
    instant_or_unset,
    name_or_unset,
    names,
    or_unset,
    page_fields,
)
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.core.filter import WorkerFilter
from tenure.core.limits import DRAIN_DEADLINE_MS
from tenure.core.seat.record import SeatView
from tenure.core.worker.health import Health
from tenure.core.worker.lease import Lease, interval_ms
from tenure.core.worker.record import EndReason, WorkerMode, WorkerStatus
from tenure.engine import rehearsal
from tenure.engine.read import query
from tenure.engine.read.query import WorkerView
from tenure.engine.rehearsal import Consequence
from tenure.engine.worker import bulk_drain
from tenure.engine.worker import command as c
from tenure.engine.worker.beat_log import BeatLog

_WORKER: Final = "/v1/workers/{workerId}"


class WorkerListQuery(CountedPageQuery, frozen=True):
    """Filter for workers."""

    queue: str = ""
    status: Annotated[str, name_of(WorkerStatus, "Only workers of this status")] = ""
    health: Annotated[str, name_of(Health, "Only active workers of this health")] = ""
    version: Annotated[str, Meta(description="Only workers of this software version")] = ""
    label: Label = field(default_factory=list)
    id: Annotated[
        list[str], Meta(description="Only these workers, all on one page; up to 100 times")
    ] = field(default_factory=list)


class DrainBody(DryRunBody, frozen=True):
    """How long the worker may take; then the rest is handed back."""

    deadline_ms: Duration | UnsetType = UNSET


class DrainAllBody(DryRunBody, frozen=True):
    """Which workers to drain: all labels and the version have to match, and one must be given."""

    labels: dict[str, str] = field(default_factory=dict)
    version: str = ""
    deadline_ms: Duration | UnsetType = UNSET


class LeaseView(View, frozen=True):
    """Until when the server considers a worker alive."""

    until: Instant
    duration_ms: int
    last_heartbeat_at: Instant
    server_id: str
    suspect_until: Instant | UnsetType = UNSET


class SeatItem(View, frozen=True):
    """Which server calls a served worker, and what it saw last; written every few seconds."""

    server_id: str | UnsetType = UNSET
    taken_at: Instant | UnsetType = UNSET
    last_call_at: Instant | UnsetType = UNSET
    call_duration_ms: int = 0
    call_error: Annotated[str, Meta(description="Left out if it was answered")] | UnsetType = UNSET
    failure_count: Annotated[int, Meta(description="Failed calls in a row")] = 0
    unconfirmed_count: Annotated[int, Meta(description="Tasks that are in no answer yet")] = 0
    kill_count: Annotated[int, Meta(description="Attempts that it has to stop")] = 0


class WorkerItem(View, frozen=True):
    """A worker; an active one has lease and health, totals are also those of an offline one."""

    worker_id: str
    namespace: str
    queue: str
    status: Annotated[str, names(WorkerStatus)]
    mode: Annotated[str, names(WorkerMode)]
    types: tuple[str, ...]
    max_concurrent: int
    registered_at: Instant
    total_completed: Annotated[int, Meta(description="From its last heartbeat")]
    total_failed: Annotated[int, Meta(description="From its last heartbeat")]
    health: Annotated[str, names(Health)] | UnsetType = UNSET
    held_count: Annotated[int, Meta(description="Live attempts it holds")] = 0
    is_held_count_exact: Annotated[
        bool, Meta(description="False in a list: it holds at least so many")
    ] = True
    oldest_held_at: Instant | UnsetType = UNSET
    may_stop: Annotated[
        bool, Meta(description="It gets nothing more and holds nothing: a stop interrupts nothing")
    ] = False
    lease_left_ms: (
        Annotated[int, Meta(description="Below 0 it may be judged any moment")] | UnsetType
    ) = UNSET
    interval_ms: Annotated[int, Meta(description="Of its heartbeats")] | UnsetType = UNSET
    per_minute: (
        Annotated[int, Meta(description="Attempts that ended, if this server hears it")] | UnsetType
    ) = UNSET
    lease: LeaseView | UnsetType = UNSET
    active_count: int | UnsetType = UNSET
    loop_lag_ms: int | UnsetType = UNSET
    stuck_count: int | UnsetType = UNSET
    name: str | UnsetType = UNSET
    hostname: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    version: str | UnsetType = UNSET
    labels: dict[str, str] = field(default_factory=dict)
    session_no: int = 0
    drain_deadline_at: Instant | UnsetType = UNSET
    ended_at: Instant | UnsetType = UNSET
    end_reason: EndReason | UnsetType = UNSET
    address: Annotated[str, Meta(description="Where a served worker listens")] | UnsetType = UNSET
    seat: SeatItem | UnsetType = UNSET
    consequences: Consequences = UNSET


class WorkerListView(View, frozen=True):
    """A page of workers, newest first."""

    workers: list[WorkerItem]
    next_page_token: NextPageToken = UNSET
    total_count: TotalCount = UNSET
    is_total_exact: IsTotalExact = UNSET


class DrainedView(View, frozen=True):
    """The workers that are draining now: none of them gets new tasks."""

    worker_ids: list[str]
    consequences: Consequences = UNSET


def _shown(view: WorkerView, beat_log: BeatLog) -> WorkerItem:
    """Show a worker, without its instance key: anyone who knows it can act for the worker."""
    item = view.worker
    return WorkerItem(
        worker_id=item.id,
        namespace=item.namespace,
        queue=item.queue,
        status=item.status.upper(),
        mode=item.mode.upper(),
        types=item.types,
        max_concurrent=item.slots,
        registered_at=instant(item.registered_at_ms),
        total_completed=view.total_completed,
        total_failed=view.total_failed,
        health=name_or_unset(view.health),
        held_count=view.held.count,
        is_held_count_exact=view.held.is_exact,
        oldest_held_at=instant_or_unset(view.held.oldest_at_ms),
        may_stop=view.may_stop,
        per_minute=or_unset(beat_log.per_minute(item.id, view.now_ms)),
        name=or_unset(item.name),
        hostname=or_unset(item.hostname),
        pid=item.pid or UNSET,
        version=or_unset(item.software_version),
        labels=item.labels,
        session_no=item.session_no,
        drain_deadline_at=instant_or_unset(item.drain_at_ms),
        ended_at=instant_or_unset(item.ended_at_ms),
        end_reason=or_unset(item.end_reason),
        **({} if view.lease is None else _lease(view.lease, view.now_ms)),
        **({} if view.seat is None else _seat(view.seat, view.lease)),
    )


def _seat(view: SeatView, lease: Lease | None) -> dict[str, Any]:
    seat, note = view.seat, view.note
    return {
        "address": seat.address,
        "seat": SeatItem(
            server_id=or_unset(seat.server_id),
            taken_at=instant_or_unset(seat.taken_at_ms or None),
            last_call_at=instant_or_unset(note.call_at_ms or None),
            call_duration_ms=note.call_ms,
            call_error=or_unset(note.call_error),
            failure_count=lease.failures if lease is not None else 0,
            unconfirmed_count=note.unconfirmed_count,
            kill_count=note.kill_count,
        ),
    }


def _lease(lease: Lease, now_ms: int) -> dict[str, Any]:
    return {
        "lease_left_ms": lease.lease_until_ms - now_ms,
        "interval_ms": interval_ms(lease.lease_ms),
        "lease": LeaseView(
            until=instant(lease.lease_until_ms),
            duration_ms=lease.lease_ms,
            last_heartbeat_at=instant(lease.beat_at_ms),
            server_id=lease.server_id,
            suspect_until=instant_or_unset(lease.suspect_until_ms),
        ),
        "active_count": lease.active_count,
        "loop_lag_ms": lease.loop_lag_ms,
        "stuck_count": lease.stuck_count,
    }


async def list_workers(call: OperationCall[WorkerListQuery, None]) -> Answer:
    """Show a page of workers."""
    asked = call.query
    where = WorkerFilter(
        queue=asked.queue,
        status=chosen(WorkerStatus, asked.status, "status"),
        health=chosen(Health, asked.health, "health"),
        version=asked.version,
        labels=labels_of(asked.label),
    )
    page = requested_page(call.engine, asked, wants_total=asked.total_count)
    store, deaf, namespace = call.engine.store, call.engine.deaf, call.namespace
    if asked.id:
        found = await query.find_workers(
            store, namespace=namespace, worker_ids=asked.id, page=page, where=where, deaf=deaf
        )
    else:
        found = await query.list_workers(
            store, namespace=namespace, page=page, where=where, deaf=deaf
        )
    workers = [_shown(each, call.engine.beat_log) for each in found.items]
    return Answer(WorkerListView(workers=workers, **page_fields(found)))


async def get_worker(call: OperationCall[Scoped, None]) -> Answer:
    """Show a worker, with its lease and its held tasks."""
    return await _present(call)


async def _present(
    call: OperationCall[Scoped, Any], found_out: Iterable[Consequence] | None = None
) -> Answer:
    """Show a worker as it is now, and what would happen to it."""
    found = await query.get_worker(
        call.engine.store,
        namespace=call.namespace,
        worker_id=call.path["workerId"],
        deaf=call.engine.deaf,
    )
    shown = _shown(found, call.engine.beat_log)
    if found_out is None:
        return Answer(shown)
    return Answer(structs.replace(shown, consequences=consequences(found_out)))


async def drain_worker(call: OperationCall[Scoped, DrainBody]) -> Answer:
    """Let a worker finish its tasks; the answer means that no later hand-out happens."""
    command = c.DrainWorker(
        namespace=call.namespace,
        worker_id=call.path["workerId"],
        deadline_ms=given_or(call.body.deadline_ms, DRAIN_DEADLINE_MS),
        actor=call.principal.key_id,
    )
    if call.body.dry_run:
        return await _present(call, await rehearsal.of_drain(call.engine, command))
    await call.engine.submit(command)
    return await _present(call)


async def evict_worker(call: OperationCall[Scoped, DryRunBody]) -> Answer:
    """Take a worker offline."""
    command = c.EvictWorker(
        namespace=call.namespace, worker_id=call.path["workerId"], actor=call.principal.key_id
    )
    if call.body.dry_run:
        return await _present(call, await rehearsal.of_evict(call.engine, command))
    await call.engine.submit(command)
    return await _present(call)


async def drain_workers(call: OperationCall[Scoped, DrainAllBody]) -> Answer:
    """Let all matching workers finish their tasks."""
    body = call.body
    deadline_ms = given_or(body.deadline_ms, DRAIN_DEADLINE_MS)
    if body.dry_run:
        matching = await bulk_drain.list_matching(
            call.engine, namespace=call.namespace, labels=body.labels, version=body.version
        )
        shown = consequences(rehearsal.of_drains(matching, deadline_ms))
        ids = [worker_id for worker_id, _ in matching]
        return Answer(DrainedView(worker_ids=ids, consequences=shown))
    drained = await bulk_drain.drain_matching(
        call.engine,
        namespace=call.namespace,
        labels=body.labels,
        version=body.version,
        deadline_ms=deadline_ms,
        actor=call.principal.key_id,
    )
    return Answer(DrainedView(worker_ids=list(drained)))


_operation: Final = partial(Operation, group="Workers", query=Scoped, errors=("not_found",))
OPERATIONS: Final = (
    _operation(
        method="GET",
        path="/v1/workers",
        name="listWorkers",
        summary="List workers, newest first; offline ones are kept for a day.",
        handle=list_workers,
        is_list=True,
        action=Action.READ,
        query=WorkerListQuery,
        answer=WorkerListView,
        example="?status=ONLINE&label=zone=eu",
    ),
    _operation(
        method="GET",
        path=_WORKER,
        name="getWorker",
        summary="Get a worker: status, health, lease, labels, totals, and number of held attempts.",
        handle=get_worker,
        action=Action.READ,
        answer=WorkerItem,
    ),
    _operation(
        method="POST",
        path=f"{_WORKER}/drain",
        name="drainWorker",
        summary="Let a worker finish its tasks and give it nothing new.",
        handle=drain_worker,
        action=Action.OPERATE,
        body=DrainBody,
        answer=WorkerItem,
        errors=("not_found", "wrong_state"),
        example='{"deadlineMs": 60000}',
    ),
    _operation(
        method="POST",
        path=f"{_WORKER}/evict",
        name="evictWorker",
        summary="Take a worker offline at once; its tasks run elsewhere.",
        handle=evict_worker,
        action=Action.OPERATE,
        body=DryRunBody,
        answer=WorkerItem,
        errors=("not_found", "wrong_state"),
    ),
    _operation(
        method="POST",
        path="/v1/workers:drain",
        name="drainWorkers",
        summary="Drain all active workers that match the labels and the version.",
        handle=drain_workers,
        action=Action.OPERATE,
        body=DrainAllBody,
        needs_body=True,
        answer=DrainedView,
        example='{"labels": {"zone": "eu"}, "version": "1.4.0"}',
    ),
)
