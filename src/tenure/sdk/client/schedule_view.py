"""Schedules and their fires as a client shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from tenure.core.limits import PRIORITY_DEFAULT
from tenure.core.schedule.record import ScheduleState
from tenure.core.task.record import TaskKind
from tenure.sdk.client.schedule import Schedule, from_wire
from tenure.sdk.instant import datetime_of
from tenure.sdk.payload import Payload
from tenure.v1 import schedule_service_pb2 as pb
from tenure.v1 import task_pb2


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored schedule. Instants are the server's; None means not yet, or never again.

    ``error`` says why a broken one cannot fire. Every instant up to ``fired_until`` has fired, was
    skipped, or is the one that waits for the end of the last task, ``buffered_at``.
    ``failure_count`` counts the failures in a row. In lists ``input`` is left out.
    """

    id: str
    namespace: str
    schedule: Schedule
    type: str
    kind: TaskKind
    queue: str
    priority: int = PRIORITY_DEFAULT
    labels: dict[str, str] = {}
    external_id: str = ""
    input: Payload | None = None
    state: ScheduleState
    pause_note: str = ""
    paused_at: datetime | None = None
    error: str = ""
    next_fire_at: datetime | None = None
    fired_until: datetime | None = None
    last_fire_at: datetime | None = None
    last_task_id: str = ""
    buffered_at: datetime | None = None
    failure_count: int = 0
    created_at: datetime | None = None
    changed_at: datetime | None = None


class PlannedFire(msgspec.Struct, frozen=True):
    """An instant at which a rule will fire, in UTC and as the clocks of its zone show it."""

    at: datetime
    local: datetime


class ScheduleFire(msgspec.Struct, frozen=True, kw_only=True):
    """A fire of a schedule, or a range of instants that were skipped: from ``at`` to ``until``.

    ``kind`` is tick, backfill, trigger or skipped. ``task_id`` is the task, or the run, that it has
    started, and ``outcome`` how that has ended. ``lateness`` is how much later than planned it
    fired. ``reason`` says why a range was skipped; it has ``count`` instants, or at least so many.
    """

    id: str
    schedule_id: str
    key: str
    kind: str
    at: datetime
    recorded_at: datetime
    lateness: timedelta
    task_id: str = ""
    outcome: str = ""
    settled_at: datetime | None = None
    reason: str = ""
    until: datetime | None = None
    count: int = 1
    is_count_exact: bool = True


class BackfillResult(msgspec.Struct, frozen=True):
    """What a backfill has started, and the keys of the instants that had fired before."""

    started: tuple[ScheduleFire, ...]
    known_keys: tuple[str, ...] = ()


def schedule_info(schedule: pb.Schedule) -> ScheduleInfo:
    """Show a stored schedule."""
    target = schedule.spec.target
    encoding = target.options.encoding
    has_priority = target.HasField("priority")
    return ScheduleInfo(
        id=schedule.schedule_id,
        namespace=schedule.namespace_id,
        schedule=from_wire(schedule.spec),
        type=target.type,
        kind=_kind(target.options.kind),
        queue=target.task_queue,
        priority=target.priority if has_priority else PRIORITY_DEFAULT,
        labels=dict(target.labels),
        external_id=target.external_id,
        input=Payload(encoding, target.input) if target.input else None,
        state=ScheduleState(schedule.state.lower()),
        pause_note=schedule.pause_note,
        paused_at=datetime_of(schedule.paused_at_ms),
        error=schedule.error,
        next_fire_at=datetime_of(schedule.next_fire_at_ms),
        fired_until=datetime_of(schedule.fired_until_ms),
        last_fire_at=datetime_of(schedule.last_fire_at_ms),
        last_task_id=schedule.last_task_id,
        buffered_at=datetime_of(schedule.buffered_at_ms),
        failure_count=schedule.failure_count,
        created_at=datetime_of(schedule.created_at_ms),
        changed_at=datetime_of(schedule.changed_at_ms),
    )


def _kind(number: task_pb2.TaskKind.ValueType) -> TaskKind:
    name = task_pb2.TaskKind.Name(number).removeprefix("TASK_KIND_")
    return TaskKind(name.lower())


def planned(fire: pb.PlannedFire) -> PlannedFire:
    """Show an instant at which a rule will fire."""
    return PlannedFire(_instant(fire.fire_at_ms), datetime.fromisoformat(fire.local_time))


def fire(found: pb.Fire) -> ScheduleFire:
    """Show a fire, or a range that was skipped."""
    return ScheduleFire(
        id=found.fire_id,
        schedule_id=found.schedule_id,
        key=found.key,
        kind=found.kind.lower(),
        at=_instant(found.fire_at_ms),
        recorded_at=_instant(found.recorded_at_ms),
        lateness=timedelta(milliseconds=found.lateness_ms),
        task_id=found.task_id,
        outcome=found.outcome.lower(),
        settled_at=datetime_of(found.settled_at_ms),
        reason=found.reason,
        until=datetime_of(found.until_ms),
        count=found.count,
        is_count_exact=found.is_count_exact,
    )


def backfill_result(answer: pb.BackfillScheduleResponse) -> BackfillResult:
    """Show what a backfill has done."""
    return BackfillResult(tuple(map(fire, answer.started)), tuple(answer.known_keys))


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)
