"""Schedules and fires as plain objects, with the names that they have in HTTP/JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.cli.show.text import instant_text
from tenure.cli.show.view import Shown, ShownRetry, copied, payload_fields
from tenure.v1 import schedule_service_pb2 as pb
from tenure.v1 import task_pb2


class ShownTarget(Shown, frozen=True, kw_only=True):
    """What a schedule starts; in lists it comes without the input."""

    type: str
    queue: str
    workflow: bool
    priority: int
    retry: ShownRetry
    labels: dict[str, str]
    resources: dict[str, str] | None = None
    encoding: str
    input: msgspec.Raw | None = None
    input_base64: str | None = None
    schedule_to_start_ms: int | None = None
    schedule_to_close_ms: int | None = None
    start_to_close_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    cancel_grace_period_ms: int | None = None
    delivery_timeout_ms: int | None = None
    timeout_ms: int | None = None
    external_id: str | None = None
    on_live: str | None = None


class ShownSchedule(Shown, frozen=True, kw_only=True):
    """A schedule: when it fires, what it starts, and how far it is."""

    schedule_id: str
    namespace: str
    state: str
    rule: str | None = None
    every: int | None = None
    offset: int | None = None
    zone: str
    target: ShownTarget
    overlap: str
    max_catchup: int
    catchup_window_ms: int | None = None
    jitter_ms: int | None = None
    starts_at: str | None = None
    ends_at: str | None = None
    pause_after_failures: int | None = None
    note: str | None = None
    next_fire_at: str | None = None
    fired_until: str | None = None
    last_fire_at: str | None = None
    last_task_id: str | None = None
    buffered_at: str | None = None
    failure_count: int
    paused_at: str | None = None
    pause_note: str | None = None
    error: str | None = None
    created_at: str
    changed_at: str
    version: int


class ShownStored(ShownSchedule, frozen=True, kw_only=True):
    """A schedule that was put."""

    is_new: bool
    is_changed: bool


class ShownFire(Shown, frozen=True, kw_only=True):
    """An instant that fired, or a range of instants that were skipped."""

    fire_id: str
    schedule_id: str
    key: str
    kind: str
    fire_at: str
    recorded_at: str
    lateness_ms: int
    task_id: str | None = None
    outcome: str | None = None
    settled_at: str | None = None
    reason: str | None = None
    until: str | None = None
    count: int
    is_count_exact: bool


class ShownTriggered(Shown, frozen=True):
    """The fire of a trigger."""

    fire: ShownFire
    is_new: bool


class ShownBackfilled(Shown, frozen=True):
    """What a backfill has started, and the keys of instants that had fired before."""

    started: list[ShownFire]
    known_keys: list[str]


class ShownPlanned(Shown, frozen=True):
    """An instant at which a rule fires, in UTC and on the clocks of its zone."""

    fire_at: str
    local: str


class ShownPlan(Shown, frozen=True):
    """The next instants of a rule, and how it is read."""

    fires: list[ShownPlanned]
    notes: list[str]


def schedule(message: pb.Schedule) -> ShownSchedule:
    """Show a schedule."""
    return ShownSchedule(**_fields(message))


def stored(answer: pb.PutScheduleResponse) -> ShownStored:
    """Show a schedule that was put."""
    fields = _fields(answer.schedule)
    return ShownStored(**fields, is_new=answer.is_new, is_changed=answer.is_changed)


def _fields(message: pb.Schedule) -> dict[str, Any]:
    spec, when = message.spec, message.spec.when
    return {
        **copied(ShownSchedule, when),
        **copied(ShownSchedule, spec),
        **copied(ShownSchedule, message),
        "namespace": message.namespace_id,
        "every": when.every_ms or None,
        "offset": when.offset_ms or None,
        "target": _target(spec.target),
        "fired_until": instant_text(message.fired_until_ms) if message.fired_until_ms else None,
    }


def _target(message: pb.ScheduleTarget) -> ShownTarget:
    options = message.options
    is_run = options.kind == task_pb2.TASK_KIND_WORKFLOW
    own: dict[str, Any] = {"timeout_ms": options.schedule_to_close_ms or None} if is_run else {}
    if is_run:
        own |= dict.fromkeys(
            ("schedule_to_close_ms", "cancel_grace_period_ms", "delivery_timeout_ms")
        )
    return ShownTarget(
        **{
            **copied(ShownTarget, options),
            **copied(ShownTarget, message),
            **payload_fields("input", message.input, options.encoding),
            "queue": message.task_queue,
            "workflow": is_run,
            "retry": ShownRetry(**copied(ShownRetry, options.retry)),
            **own,
        }
    )


def fire(message: pb.Fire) -> ShownFire:
    """Show a fire."""
    until = instant_text(message.until_ms) if message.until_ms else None
    return ShownFire(**{**copied(ShownFire, message), "until": until})


def triggered(answer: pb.TriggerScheduleResponse) -> ShownTriggered:
    """Show the fire of a trigger."""
    return ShownTriggered(fire(answer.fire), answer.is_new)


def backfilled(answer: pb.BackfillScheduleResponse) -> ShownBackfilled:
    """Show what a backfill has done."""
    return ShownBackfilled([fire(each) for each in answer.started], list(answer.known_keys))


def plan(answer: pb.ListNextFiresResponse | pb.PreviewRuleResponse) -> ShownPlan:
    """Show what a rule will fire."""
    fires = [ShownPlanned(instant_text(each.fire_at_ms), each.local_time) for each in answer.fires]
    return ShownPlan(fires, list(answer.notes))
