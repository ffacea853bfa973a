"""The answers about schedules, and how they are made from records of the engine."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType, field, structs

from tenure.api.http.route.task.body import Base64
from tenure.api.http.route.task.view import RetryPolicyView, payload_fields
from tenure.api.http.view import (
    Instant,
    IsTotalExact,
    NextPageToken,
    TotalCount,
    View,
    instant,
    instant_or_unset,
    name_or_unset,
    names,
    or_unset,
    values,
)
from tenure.core.run.external_id import OnLive
from tenure.core.schedule.plan import Plan
from tenure.core.schedule.record import (
    Fire,
    FireKind,
    FireOutcome,
    Overlap,
    ScheduleState,
    SkipReason,
    Target,
)
from tenure.engine.read.schedule import ScheduleView
from tenure.engine.schedule import command as c


class TargetItem(View, frozen=True):
    """What a schedule starts. Lists leave out the input."""

    type: str
    queue: str
    workflow: bool
    priority: int
    retry: RetryPolicyView
    labels: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] | UnsetType = UNSET
    encoding: str = ""
    input: Raw | UnsetType = UNSET
    input_base64: Base64 | UnsetType = field(default=UNSET, name="inputBase64")
    schedule_to_start_ms: int | UnsetType = UNSET
    schedule_to_close_ms: int | UnsetType = UNSET
    start_to_close_ms: int | UnsetType = UNSET
    heartbeat_timeout_ms: int | UnsetType = UNSET
    heartbeat_interval_ms: int | UnsetType = UNSET
    cancel_grace_period_ms: int | UnsetType = UNSET
    delivery_timeout_ms: int | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(description="Of a run")] | UnsetType = UNSET
    external_id: Annotated[str, Meta(description="Of a run")] | UnsetType = UNSET
    on_live: Annotated[str, names(OnLive)] | UnsetType = UNSET


class ScheduleItem(View, frozen=True):
    """A schedule. rule is missing if it fires at an interval, every."""

    schedule_id: str
    namespace: str
    state: Annotated[str, names(ScheduleState)]
    zone: str
    target: TargetItem
    overlap: Annotated[str, names(Overlap)]
    max_catchup: int
    created_at: Instant
    changed_at: Annotated[Instant, Meta(description="Somebody put, paused or resumed it last")]
    version: int
    rule: str | UnsetType = UNSET
    every: Annotated[int, Meta(description="In milliseconds")] | UnsetType = UNSET
    offset: Annotated[int, Meta(description="In milliseconds")] | UnsetType = UNSET
    catchup_window_ms: int | UnsetType = UNSET
    jitter_ms: int | UnsetType = UNSET
    starts_at: Instant | UnsetType = UNSET
    ends_at: Instant | UnsetType = UNSET
    pause_after_failures: int | UnsetType = UNSET
    note: str | UnsetType = UNSET
    next_fire_at: Instant | UnsetType = UNSET
    fired_until: (
        Annotated[Instant, Meta(description="Every instant up to here is dealt with")] | UnsetType
    ) = UNSET
    last_fire_at: Instant | UnsetType = UNSET
    last_task_id: str | UnsetType = UNSET
    buffered_at: (
        Annotated[Instant, Meta(description="The instant that waits for the end of the last task")]
        | UnsetType
    ) = UNSET
    failure_count: Annotated[int, Meta(description="In a row")] = 0
    paused_at: Instant | UnsetType = UNSET
    pause_note: Annotated[str, Meta(description="Why it is paused")] | UnsetType = UNSET
    error: Annotated[str, Meta(description="Why it is broken")] | UnsetType = UNSET


class StoredItem(ScheduleItem, frozen=True, kw_only=True):
    """A schedule that was created or put."""

    is_new: bool
    is_changed: Annotated[bool, Meta(description="False if it said the same before")]


class ScheduleListView(View, frozen=True):
    """A page of schedules, by id."""

    schedules: list[ScheduleItem]
    next_page_token: NextPageToken = UNSET
    total_count: TotalCount = UNSET
    is_total_exact: IsTotalExact = UNSET


class FireItem(View, frozen=True):
    """An instant that fired, or a range of instants that were skipped."""

    fire_id: str
    schedule_id: str
    key: str
    kind: Annotated[str, names(FireKind)]
    fire_at: Annotated[Instant, Meta(description="Of a range the first instant")]
    recorded_at: Instant
    lateness_ms: Annotated[int, Meta(description="How much later than planned it fired")]
    task_id: Annotated[str, Meta(description="The task or the run")] | UnsetType = UNSET
    outcome: (
        Annotated[str, names(FireOutcome), Meta(description="Missing until it has ended")]
        | UnsetType
    ) = UNSET
    settled_at: Instant | UnsetType = UNSET
    reason: Annotated[str, values(SkipReason)] | UnsetType = UNSET
    until: Annotated[Instant, Meta(description="The last instant of a range")] | UnsetType = UNSET
    count: int = 1
    is_count_exact: Annotated[
        bool, Meta(description="False when counting stopped: there are at least so many")
    ] = True


class FireListView(View, frozen=True):
    """A page of what a schedule has fired and skipped, newest first."""

    fires: list[FireItem]
    next_page_token: NextPageToken = UNSET


class TriggeredView(View, frozen=True):
    """The fire of a trigger; it is not new if one with its triggerId was there."""

    fire: FireItem
    is_new: bool


class BackfilledView(View, frozen=True):
    """What a backfill has started, and the keys of instants that had fired before."""

    started: list[FireItem]
    known_keys: tuple[str, ...] = ()


class PlannedItem(View, frozen=True):
    """An instant at which a rule fires."""

    fire_at: Instant
    local: Annotated[str, Meta(description="What the clocks of the zone show then")]


class PlannedView(View, frozen=True):
    """The next instants of a rule; fewer if it has no more."""

    fires: list[PlannedItem]
    notes: Annotated[
        tuple[str, ...], Meta(description="How the rule is read where others read it otherwise")
    ] = ()


def schedule(view: ScheduleView) -> ScheduleItem:
    """Show one schedule, with the input of what it starts."""
    return ScheduleItem(**_fields(view, with_input=True))


def listed(view: ScheduleView) -> ScheduleItem:
    """Show a schedule in a list."""
    return ScheduleItem(**_fields(view, with_input=False))


def stored(answer: c.Stored, view: ScheduleView) -> StoredItem:
    """Show a schedule that was created or put."""
    fields = _fields(view, with_input=True)
    return StoredItem(**fields, is_new=answer.is_new, is_changed=answer.is_changed)


def _fields(view: ScheduleView, *, with_input: bool) -> dict[str, Any]:
    found, spec, progress = view.schedule, view.schedule.spec, view.schedule.progress
    return {
        "schedule_id": found.id,
        "namespace": found.namespace,
        "state": found.state.upper(),
        "rule": or_unset(spec.rule.cron),
        "every": spec.rule.every_ms or UNSET,
        "offset": spec.rule.offset_ms or UNSET,
        "zone": spec.rule.zone,
        "target": _target(spec.target, with_input=with_input),
        "overlap": spec.overlap.upper(),
        "max_catchup": spec.max_catchup,
        "catchup_window_ms": or_unset(spec.catchup_window_ms),
        "jitter_ms": spec.jitter_ms or UNSET,
        "starts_at": instant_or_unset(spec.starts_at_ms),
        "ends_at": instant_or_unset(spec.ends_at_ms),
        "pause_after_failures": spec.pause_after_failures or UNSET,
        "note": or_unset(spec.note),
        "next_fire_at": instant_or_unset(view.next_at_ms),
        "fired_until": instant_or_unset(progress.fired_until_ms),
        "last_fire_at": instant_or_unset(progress.last_fire_at_ms),
        "last_task_id": or_unset(progress.last_task_id),
        "buffered_at": instant_or_unset(progress.buffered_at_ms),
        "failure_count": progress.failure_count,
        "paused_at": instant_or_unset(progress.paused_at_ms),
        "pause_note": or_unset(progress.pause_note),
        "error": or_unset(progress.error),
        "created_at": instant(found.created_at_ms),
        "changed_at": instant(found.changed_at_ms),
        "version": found.version,
    }


def _target(target: Target, *, with_input: bool) -> TargetItem:
    spec = target.spec
    own = _of_run(target) if target.is_run else _of_task(target)
    return TargetItem(
        type=target.type,
        queue=target.queue,
        workflow=target.is_run,
        priority=target.priority,
        retry=RetryPolicyView(**structs.asdict(spec.retry)),
        labels=target.labels or {},
        encoding=spec.encoding,
        **(payload_fields("input", target.input, encoding=spec.encoding) if with_input else {}),
        **own,
    )


def _of_run(target: Target) -> dict[str, Any]:
    return {
        "timeout_ms": target.spec.schedule_to_close_ms or UNSET,
        "external_id": or_unset(target.external_id),
        "on_live": target.on_live.upper(),
    }


def _of_task(target: Target) -> dict[str, Any]:
    spec = target.spec
    return {
        "resources": spec.resources or UNSET,
        "schedule_to_start_ms": spec.schedule_to_start_ms or UNSET,
        "schedule_to_close_ms": spec.schedule_to_close_ms or UNSET,
        "start_to_close_ms": spec.start_to_close_ms or UNSET,
        "heartbeat_timeout_ms": spec.heartbeat_timeout_ms or UNSET,
        "heartbeat_interval_ms": spec.heartbeat_interval_ms or UNSET,
        "cancel_grace_period_ms": spec.cancel_grace_ms,
        "delivery_timeout_ms": spec.delivery_timeout_ms,
    }


def fire(found: Fire) -> FireItem:
    """Show a fire, or a range that was skipped."""
    return FireItem(
        fire_id=found.id,
        schedule_id=found.schedule_id,
        key=found.key,
        kind=found.kind.upper(),
        fire_at=instant(found.fire_at_ms),
        recorded_at=instant(found.recorded_at_ms),
        lateness_ms=found.lateness_ms,
        task_id=or_unset(found.task_id),
        outcome=name_or_unset(found.outcome),
        settled_at=instant_or_unset(found.settled_at_ms),
        reason=UNSET if found.reason is None else found.reason.value,
        until=instant_or_unset(found.until_ms if found.reason is not None else None),
        count=found.count,
        is_count_exact=found.is_count_exact,
    )


def backfilled(answer: c.Backfilled) -> BackfilledView:
    """Show what a backfill has started."""
    return BackfilledView(
        started=[fire(each) for each in answer.started], known_keys=answer.known_keys
    )


def planned(found: Plan) -> PlannedView:
    """Show the next instants of a rule."""
    fires = [PlannedItem(fire_at=each.utc, local=each.local) for each in found.fires]
    return PlannedView(fires=fires, notes=found.notes)
