"""The operations that look closer at workers: what they hold, their past, and stop checks."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType, field

from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Label, Scoped, labels_of
from tenure.api.http.view import Instant, View, instant, instant_or_unset, names, or_unset, values
from tenure.api.http.wait import whole_wait_ms
from tenure.core.access.permission import Action
from tenure.core.limits import CALL_MS, LONG_POLL_MS, PAGE_SIZE_MAX
from tenure.core.task.record import TaskState
from tenure.core.worker.change import ChangeKind, WorkerChange
from tenure.core.worker.stop_check import HeldAttempt, StopReason
from tenure.engine.read import stop_check
from tenure.engine.read import worker as worker_read
from tenure.engine.read.stop_check import StopCheck

_WORKER: Final = "/v1/workers/{workerId}"
_Wait = Annotated[str, Meta(description="Answer when a stop is safe, or after this long: 60s")]


class AmountQuery(Scoped, frozen=True):
    """How many items to show."""

    page_size: Annotated[int, Meta(description=f"0 is 20, at most {PAGE_SIZE_MAX}", ge=0)] = 0


class StopCheckQuery(Scoped, frozen=True):
    """Whether to wait until a stop is safe."""

    wait: _Wait = ""


class StopCheckAllQuery(StopCheckQuery, frozen=True):
    """Which workers to check: all labels and the version have to match, and one must be given."""

    version: Annotated[str, Meta(description="Only workers of this software version")] = ""
    label: Label = field(default_factory=list)


class HeldView(View, frozen=True):
    """A live attempt that names a worker."""

    task_id: str
    type: str
    state: Annotated[str, names(TaskState)]
    attempt: int
    handed_at: Instant


class HeldListView(View, frozen=True):
    """What a worker holds, the longest held first."""

    held: list[HeldView]
    has_more: bool
    reported_count: (
        Annotated[int, Meta(description="How many its last heartbeat reported")] | UnsetType
    ) = UNSET


class WorkerChangeView(View, frozen=True):
    """A change of a worker's status or connection."""

    at: Instant
    kind: Annotated[str, values(ChangeKind)]
    cause: str | UnsetType = UNSET
    audit_id: str | UnsetType = UNSET


class WorkerChangeListView(View, frozen=True):
    """The changes of a worker, newest first."""

    events: list[WorkerChangeView]


class BeatView(View, frozen=True):
    """An accepted heartbeat: attempts that ended so far and that run, and the event loop's lag."""

    at: Instant
    ended_total: int
    active_count: int
    loop_lag_ms: int


class BeatListView(View, frozen=True):
    """The last heartbeats of a worker, oldest first; none if it sends them to another server."""

    beats: list[BeatView]
    is_heard: bool


class StopBlockerView(View, frozen=True):
    """A worker that must not be stopped yet."""

    worker_id: str
    reason: Annotated[str, values(StopReason)]
    held_count: int


class StopCheckView(View, frozen=True):
    """Whether a stop interrupts nothing, and what shows it: see the guide about workers."""

    is_safe: bool
    reason: Annotated[str, values(StopReason)]
    checked_at: Instant
    held_count: int
    unconfirmed_count: Annotated[int, Meta(description="Handed out, not confirmed yet")]
    is_held_count_exact: bool
    worker_count: int
    safe_count: int
    committed_at: (
        Annotated[Instant, Meta(description="Nothing was handed out after this commit")] | UnsetType
    ) = UNSET
    audit_id: str | UnsetType = UNSET
    oldest_held_at: Instant | UnsetType = UNSET
    last_result_at: (
        Annotated[Instant, Meta(description="From its heartbeats, if this server hears them")]
        | UnsetType
    ) = UNSET
    clears_at: (
        Annotated[Instant, Meta(description="When what is left goes back at the latest")]
        | UnsetType
    ) = UNSET
    blockers: Annotated[
        list[HeldView], Meta(description="Of one worker: up to 100 attempts, longest held first")
    ] = field(default_factory=list)
    workers: Annotated[
        list[StopBlockerView], Meta(description="Of several: up to 100 that are in the way")
    ] = field(default_factory=list)


def _held(held: HeldAttempt) -> HeldView:
    return HeldView(
        task_id=held.task_id,
        type=held.type,
        state=held.state.upper(),
        attempt=held.attempt,
        handed_at=instant(held.handed_at_ms),
    )


def _change(change: WorkerChange) -> WorkerChangeView:
    return WorkerChangeView(
        at=instant(change.at_ms),
        kind=change.kind,
        cause=or_unset(change.cause),
        audit_id=or_unset(change.audit_id),
    )


def _checked(found: StopCheck) -> StopCheckView:
    return StopCheckView(
        is_safe=found.is_safe,
        reason=found.reason,
        checked_at=instant(found.checked_at_ms),
        held_count=found.held.count,
        unconfirmed_count=found.held.unconfirmed_count,
        is_held_count_exact=found.held.is_exact,
        worker_count=found.worker_count,
        safe_count=found.safe_count,
        committed_at=instant_or_unset(found.committed_at_ms),
        audit_id=or_unset(found.audit_id),
        oldest_held_at=instant_or_unset(found.held.oldest_at_ms),
        last_result_at=instant_or_unset(found.last_result_at_ms),
        clears_at=instant_or_unset(found.clears_at_ms),
        blockers=[_held(each) for each in found.blockers],
        workers=[
            StopBlockerView(
                worker_id=each.worker_id, reason=each.reason, held_count=each.held_count
            )
            for each in found.workers
        ],
    )


async def list_held(call: OperationCall[AmountQuery, None]) -> Answer:
    """Show what a worker holds."""
    found = await worker_read.list_held(
        call.engine.store,
        namespace=call.namespace,
        worker_id=call.path["workerId"],
        amount=call.query.page_size,
    )
    held = [_held(each) for each in found.held]
    reported = or_unset(found.reported_count)
    return Answer(HeldListView(held=held, has_more=found.has_more, reported_count=reported))


async def list_worker_events(call: OperationCall[AmountQuery, None]) -> Answer:
    """Show how a worker has changed."""
    found = await worker_read.list_history(
        call.engine.store,
        namespace=call.namespace,
        worker_id=call.path["workerId"],
        amount=call.query.page_size,
    )
    return Answer(WorkerChangeListView(events=[_change(each) for each in found]))


async def list_beats(call: OperationCall[Scoped, None]) -> Answer:
    """Show the last heartbeats of a worker."""
    found = await worker_read.list_beats(
        call.engine, namespace=call.namespace, worker_id=call.path["workerId"]
    )
    beats = [
        BeatView(
            at=instant(each.at_ms),
            ended_total=each.ended_total,
            active_count=each.active_count,
            loop_lag_ms=each.loop_lag_ms,
        )
        for each in found
    ]
    return Answer(BeatListView(beats=beats, is_heard=bool(beats)))


async def check_stop(call: OperationCall[StopCheckQuery, None]) -> Answer:
    """Show whether a worker may be stopped, at once or when it may."""

    async def look() -> StopCheck:
        return await stop_check.check_worker(
            call.engine, namespace=call.namespace, worker_id=call.path["workerId"]
        )

    return await _answered(call, look)


async def check_stops(call: OperationCall[StopCheckAllQuery, None]) -> Answer:
    """Show whether all matching workers may be stopped, at once or when they may."""
    labels = labels_of(call.query.label)

    async def look() -> StopCheck:
        return await stop_check.check_matching(
            call.engine, namespace=call.namespace, labels=labels, version=call.query.version
        )

    return await _answered(call, look)


async def _answered(call: OperationCall[Any, None], look: stop_check.Look) -> Answer:
    wait_ms = whole_wait_ms(call.query.wait)
    found = await look()
    if found.is_safe or not wait_ms:
        return Answer(_checked(found))
    context = call.context
    with context.waits, context.allowance.waits.place(call.namespace):
        found = await stop_check.wait_until_safe(
            look, wait_ms=wait_ms, stopping=context.readiness.stopping
        )
    return Answer(_checked(found))


_operation: Final = partial(
    Operation,
    method="GET",
    group="Workers",
    action=Action.READ,
    query=Scoped,
    errors=("not_found",),
)
OPERATIONS: Final = (
    _operation(
        path=f"{_WORKER}/held",
        name="listHeld",
        summary="What a worker holds, the longest held first, and how many it reports.",
        handle=list_held,
        query=AmountQuery,
        answer=HeldListView,
    ),
    _operation(
        path=f"{_WORKER}/events",
        name="listWorkerEvents",
        summary="The changes of a worker's status and connection of the last 7 days, with causes.",
        handle=list_worker_events,
        query=AmountQuery,
        answer=WorkerChangeListView,
    ),
    _operation(
        path=f"{_WORKER}/beats",
        name="listBeats",
        summary="The last 180 heartbeats of a worker, if this server hears it.",
        handle=list_beats,
        answer=BeatListView,
    ),
    _operation(
        path=f"{_WORKER}/stop-check",
        name="checkStop",
        summary="Whether a worker may be stopped without interrupting anything, and what shows it.",
        handle=check_stop,
        query=StopCheckQuery,
        answer=StopCheckView,
        is_waiting=True,
        deadline_ms=CALL_MS + LONG_POLL_MS,
        example="?wait=60s",
    ),
    _operation(
        path="/v1/workers:stop-check",
        name="checkStops",
        summary="The same for all workers with labels or a version; safe only if each of them is.",
        handle=check_stops,
        query=StopCheckAllQuery,
        answer=StopCheckView,
        is_waiting=True,
        is_list=True,
        deadline_ms=CALL_MS + LONG_POLL_MS,
        example="?version=1.4.2&wait=60s",
    ),
)
