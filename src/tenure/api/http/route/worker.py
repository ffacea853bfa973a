"""The operations on workers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, TypeVar

from msgspec import UNSET, UnsetType

from tenure.api.http import view
from tenure.api.http.body import DrainAllBody, DrainBody, EmptyBody
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped, WorkerListQuery
from tenure.core.access.permission import Action
from tenure.core.filter import WorkerFilter
from tenure.core.limits import DRAIN_DEADLINE_MS
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus
from tenure.engine.read import query
from tenure.engine.worker import bulk_drain
from tenure.engine.worker import command as c
from tenure.errors import InvalidArgument

E = TypeVar("E", WorkerStatus, Health)
_STATUSES: Final = {status.upper(): status for status in WorkerStatus}
_HEALTHS: Final = {health.upper(): health for health in Health}
_WORKER: Final = "/v1/workers/{workerId}"


async def list_workers(call: OperationCall[WorkerListQuery, None]) -> Answer:
    """Show a page of workers."""
    asked = call.query
    where = WorkerFilter(
        queue=asked.queue,
        status=_one_of(_STATUSES, asked.status, "status"),
        health=_one_of(_HEALTHS, asked.health, "health"),
        version=asked.version,
        labels=_labels(asked.label),
    )
    page = query.PageRequest(
        cursor_key=call.engine.secrets.cursor_key,
        size=asked.page_size,
        token=asked.page_token,
        wants_total=asked.total_count,
    )
    found = await query.list_workers(
        call.engine.store,
        namespace=call.namespace,
        page=page,
        where=where,
        deaf=call.engine.deaf,
    )
    return Answer(view.worker_list(found))


def _one_of(known: dict[str, E], name: str, field: str) -> E | None:
    if name and name not in known:
        message = f"{field} must be one of {', '.join(known)}"
        raise InvalidArgument(message, field=field)
    return known.get(name)


def _labels(given: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or key in labels:
            message = "label must be key=value, each key once"
            raise InvalidArgument(message, field="label")
        labels[key] = value
    return labels


async def get_worker(call: OperationCall[Scoped, None]) -> Answer:
    """Show a worker, with its lease and what it holds."""
    found = await query.get_worker(
        call.engine.store,
        namespace=call.namespace,
        worker_id=call.path["workerId"],
        deaf=call.engine.deaf,
    )
    return Answer(view.worker(found))


async def drain_worker(call: OperationCall[Scoped, DrainBody]) -> Answer:
    """Let a worker finish what it holds; the answer means that no later hand-out happens."""
    command = c.DrainWorker(
        namespace=call.namespace,
        worker_id=call.path["workerId"],
        deadline_ms=_deadline_ms(call.body.deadline_ms),
        actor=call.principal.key_id,
    )
    return Answer(view.changed_worker(await call.engine.submit(command)))


async def evict_worker(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Take a worker offline."""
    command = c.EvictWorker(
        namespace=call.namespace,
        worker_id=call.path["workerId"],
        actor=call.principal.key_id,
    )
    return Answer(view.changed_worker(await call.engine.submit(command)))


async def drain_workers(call: OperationCall[Scoped, DrainAllBody]) -> Answer:
    """Let all workers that match finish what they hold."""
    body = call.body
    drained = await bulk_drain.drain_matching(
        call.engine,
        namespace=call.namespace,
        labels=body.labels,
        version=body.version,
        deadline_ms=_deadline_ms(body.deadline_ms),
        actor=call.principal.key_id,
    )
    return Answer(view.DrainedView(worker_ids=list(drained)))


def _deadline_ms(given: int | UnsetType) -> int:
    return DRAIN_DEADLINE_MS if given is UNSET else given


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/workers",
        name="listWorkers",
        group="Workers",
        summary="List workers, newest first; offline ones are kept for a day.",
        handle=list_workers,
        is_list=True,
        action=Action.READ,
        query=WorkerListQuery,
        answer=view.WorkerListView,
        errors=("not_found",),
        example="?status=ONLINE&label=zone=eu",
    ),
    Operation(
        method="GET",
        path=_WORKER,
        name="getWorker",
        group="Workers",
        summary="Get a worker: status, health, lease, labels, totals, and how much it holds.",
        handle=get_worker,
        action=Action.READ,
        query=Scoped,
        answer=view.WorkerItem,
        errors=("not_found",),
    ),
    Operation(
        method="POST",
        path=f"{_WORKER}/drain",
        name="drainWorker",
        group="Workers",
        summary="Let a worker finish what it holds and give it nothing new.",
        handle=drain_worker,
        action=Action.OPERATE,
        query=Scoped,
        body=DrainBody,
        answer=view.WorkerItem,
        errors=("not_found", "wrong_state"),
        example='{"deadlineMs": 60000}',
    ),
    Operation(
        method="POST",
        path=f"{_WORKER}/evict",
        name="evictWorker",
        group="Workers",
        summary="Take a worker offline whatever it does; its tasks run elsewhere.",
        handle=evict_worker,
        action=Action.OPERATE,
        query=Scoped,
        body=EmptyBody,
        answer=view.WorkerItem,
        errors=("not_found", "wrong_state"),
    ),
    Operation(
        method="POST",
        path="/v1/workers:drain",
        name="drainWorkers",
        group="Workers",
        summary="Drain all active workers that match the labels and the version.",
        handle=drain_workers,
        action=Action.OPERATE,
        query=Scoped,
        body=DrainAllBody,
        needs_body=True,
        answer=view.DrainedView,
        status=HTTPStatus.OK,
        errors=("not_found",),
        example='{"labels": {"zone": "eu"}, "version": "1.4.0"}',
    ),
)
