"""The operations that show a server, a namespace and a fleet as a whole."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType, field

import tenure
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import NoQuery, Scoped
from tenure.api.http.route.queue import PerMinuteView, WaitView, per_minute, wait_ms
from tenure.api.http.route.task.body import instant_ms
from tenure.api.http.view import Instant, View, instant, instant_or_unset, values
from tenure.core.access.permission import Action
from tenure.core.diagnosis.finding import Level
from tenure.engine.read import fleet as fleet_read
from tenure.engine.read.fleet import Fleet
from tenure.engine.read.overview import get_overview
from tenure.store.table.fleet import FleetWorker


class FleetQuery(Scoped, frozen=True):
    """How to show a fleet."""

    by: Annotated[str, Meta(description="Only groups: version, queue, or label:KEY")] = ""
    at: (
        Annotated[datetime, Meta(tz=True, description="The fleet as it was, up to 24 hours back")]
        | UnsetType
    ) = UNSET


class ServerView(View, frozen=True):
    """The server that answers, and the other servers of its store."""

    server_id: str
    version: str
    store: Annotated[str, Meta(description="sqlite or postgres")]
    now: Instant
    dashboard: Annotated[bool, Meta(description="Whether /ui/ has a dashboard")]
    servers: (
        Annotated[int, Meta(description="Servers that are alive, when sampled")] | UnsetType
    ) = UNSET
    sample_at: Instant | UnsetType = UNSET


class AttentionView(View, frozen=True):
    """Something to look at."""

    code: str
    severity: Annotated[str, values(Level)]
    message: str
    advice: str
    since: Instant | UnsetType = UNSET


class OverviewView(View, frozen=True):
    """A namespace in numbers; without sampleAt this server has not sampled yet."""

    tasks: Annotated[dict[str, int], Meta(description="Live tasks by state")]
    per_minute: PerMinuteView
    workers: Annotated[dict[str, int], Meta(description="By status")]
    healths: Annotated[dict[str, int], Meta(description="Active workers by health")]
    slots: int
    held: int
    oldest_waiting_ms: Annotated[int, Meta(description="0 if no task waits")]
    attention: Annotated[list[AttentionView], Meta(description="Up to 20, the worst first")]
    wait_ms: WaitView | UnsetType = UNSET
    sample_at: Instant | UnsetType = UNSET


class FleetColumns(View, frozen=True):
    """The workers in columns: the values with one index belong to one worker."""

    id: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    version: list[str] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)
    held: Annotated[list[int], Meta(description="Counted up to 1,000; -1 of the past")] = field(
        default_factory=list
    )
    slots: list[int] = field(default_factory=list)
    lease_left_ms: list[int] = field(default_factory=list)


class FleetGroupView(View, frozen=True):
    """Workers that are alike, added up."""

    name: str
    worker_count: int
    draining_count: int
    unwell_count: int
    may_stop_count: int
    held_count: int
    slots: int


class FleetView(View, frozen=True):
    """The active workers, newest first: columns, or groups with the largest first."""

    at: Instant
    worker_count: int
    has_more: Annotated[bool, Meta(description="There are more than 10,000 workers")]
    columns: FleetColumns | UnsetType = UNSET
    groups: list[FleetGroupView] | UnsetType = UNSET


async def get_server(call: OperationCall[NoQuery, None]) -> Answer:
    """Show the server that answers."""
    engine = call.engine
    sample = engine.statistics.sample
    return Answer(
        ServerView(
            server_id=engine.server_id,
            version=tenure.__version__,
            store=engine.store.dialect,
            now=instant(engine.clock.now_ms()),
            dashboard=False,
            servers=UNSET if sample is None else sample.server_count,
            sample_at=UNSET if sample is None else instant(sample.at_ms),
        )
    )


async def show_overview(call: OperationCall[Scoped, None]) -> Answer:
    """Show a namespace in numbers."""
    found = await get_overview(call.engine, namespace=call.namespace)
    return Answer(
        OverviewView(
            tasks={state.upper(): count for state, count in found.tasks.items()},
            per_minute=per_minute(found.last_minute),
            workers={status.upper(): count for status, count in found.statuses.items()},
            healths={health.upper(): count for health, count in found.healths.items()},
            slots=found.slots,
            held=found.held_count,
            oldest_waiting_ms=found.oldest_waiting_ms,
            attention=[
                AttentionView(
                    code=each.code,
                    severity=each.severity,
                    message=each.message,
                    advice=each.advice,
                    since=instant_or_unset(each.since_ms),
                )
                for each in found.attention
            ],
            wait_ms=wait_ms(found.last_minute),
            sample_at=instant_or_unset(found.sample_at_ms),
        )
    )


async def show_fleet(call: OperationCall[FleetQuery, None]) -> Answer:
    """Show all workers at once."""
    by = fleet_read.check_by(call.query.by)
    at = call.query.at
    at_ms = 0 if at is UNSET else instant_ms(at, "at")
    namespace = call.namespace

    async def read() -> Fleet:
        return await fleet_read.get_fleet(call.engine, namespace=namespace, at_ms=at_ms)

    found = await call.context.fleets.get((namespace, at_ms), read)
    shown: dict[str, Any] = {"columns": _columns(found.workers)}
    if by:
        groups = fleet_read.grouped(found.workers, by)
        names = FleetGroupView.__struct_fields__
        shown = {
            "groups": [
                FleetGroupView(**{name: getattr(each, name) for name in names}) for each in groups
            ]
        }
    return Answer(
        FleetView(
            at=instant(found.at_ms),
            worker_count=len(found.workers),
            has_more=found.has_more,
            **shown,
        )
    )


def _columns(workers: tuple[FleetWorker, ...]) -> FleetColumns:
    return FleetColumns(
        id=[each.id for each in workers],
        name=[each.name for each in workers],
        status=[each.status.upper() for each in workers],
        health=[each.health.upper() for each in workers],
        version=[each.version for each in workers],
        queue=[each.queue for each in workers],
        held=[each.held for each in workers],
        slots=[each.slots for each in workers],
        lease_left_ms=[each.lease_left_ms for each in workers],
    )


_operation: Final = partial(Operation, method="GET", action=Action.READ)
OPERATIONS: Final = (
    _operation(
        path="/v1/server",
        name="getServer",
        group="Server",
        summary="The server that answers: version, store, and how many servers there are.",
        handle=get_server,
        answer=ServerView,
    ),
    _operation(
        path="/v1/overview",
        name="getOverview",
        group="Server",
        summary="A namespace in numbers, and what needs attention; from the server's memory.",
        handle=show_overview,
        query=Scoped,
        answer=OverviewView,
        errors=("not_found",),
    ),
)
FLEET_OPERATIONS: Final = (
    _operation(
        path="/v1/workers:fleet",
        name="getFleet",
        group="Workers",
        summary="All active workers at once, in columns or by groups, now or in the last day.",
        handle=show_fleet,
        is_list=True,
        query=FleetQuery,
        answer=FleetView,
        errors=("not_found",),
        example="?by=version",
    ),
)
