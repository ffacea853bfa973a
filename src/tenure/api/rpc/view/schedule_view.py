"""Converts schedules and fires between records of the core and messages of the wire."""

from __future__ import annotations

import enum
from typing import Final, TypeVar

from tenure.api.rpc.view import run_view, task_view
from tenure.core import limits
from tenure.core.schedule.preview import PlannedFire
from tenure.core.schedule.record import Fire, Overlap, ResumeMode, Rule, ScheduleSpec, Target
from tenure.core.task.record import TaskKind
from tenure.engine.read.schedule import ScheduleView
from tenure.errors import InvalidArgument
from tenure.v1 import schedule_service_pb2 as pb
from tenure.v1 import task_pb2

Choice = TypeVar("Choice", bound=enum.StrEnum)
_UTC: Final = "UTC"


class TargetReader:
    """Reads what schedules start; equal options are read once."""

    def __init__(self) -> None:
        """Start without any."""
        self._of_task = task_view.SpecReader(task_view.read_options)
        self._of_run = task_view.SpecReader(run_view.read_options)

    def read(self, message: pb.ScheduleTarget) -> Target:
        """Return what a fire starts."""
        is_run = message.options.kind == task_pb2.TASK_KIND_WORKFLOW
        specs = self._of_run if is_run else self._of_task
        return Target(
            type=message.type,
            queue=message.task_queue,
            spec=specs.read(message.options),
            input=message.input or None,
            priority=message.priority if message.HasField("priority") else limits.PRIORITY_DEFAULT,
            labels=dict(message.labels) or None,
            external_id=message.external_id,
            on_live=run_view.on_live(message.on_live),
        )


def rule(message: pb.ScheduleRule) -> Rule:
    """Return when a schedule fires."""
    return Rule(
        cron=message.rule,
        every_ms=message.every_ms,
        offset_ms=message.offset_ms,
        zone=message.zone or _UTC,
    )


def spec(message: pb.ScheduleSpec, targets: TargetReader) -> ScheduleSpec:
    """Return the content of a schedule as a client puts it."""
    window_ms = message.catchup_window_ms
    return ScheduleSpec(
        rule=rule(message.when),
        target=targets.read(message.target),
        overlap=_choice(Overlap, message.overlap or Overlap.ALLOW, "overlap"),
        max_catchup=(
            message.max_catchup if message.HasField("max_catchup") else limits.MAX_CATCHUP
        ),
        catchup_window_ms=window_ms if message.HasField("catchup_window_ms") else None,
        jitter_ms=message.jitter_ms,
        starts_at_ms=message.when.starts_at_ms or None,
        ends_at_ms=message.when.ends_at_ms or None,
        pause_after_failures=message.pause_after_failures,
        note=message.note,
    )


def resume_mode(text: str) -> ResumeMode:
    """Return what happens to the instants of a pause; empty is the default."""
    return _choice(ResumeMode, text or ResumeMode.CATCH_UP, "mode")


def _choice(kind: type[Choice], text: str, field: str) -> Choice:
    try:
        return kind(text.lower())
    except ValueError:
        names = ", ".join(each.name for each in kind)
        raise InvalidArgument(f"{field} must be one of {names}", field=field) from None


def shown(view: ScheduleView, *, with_payload: bool = True) -> pb.Schedule:
    """Show a schedule; lists leave the payload out."""
    schedule, progress = view.schedule, view.schedule.progress
    return pb.Schedule(
        schedule_id=schedule.id,
        namespace_id=schedule.namespace,
        spec=_shown_spec(schedule.spec, with_payload=with_payload),
        state=schedule.state.upper(),
        pause_note=progress.pause_note,
        paused_at_ms=progress.paused_at_ms,
        error=progress.error,
        next_fire_at_ms=view.next_at_ms or 0,
        fired_until_ms=progress.fired_until_ms,
        last_fire_at_ms=progress.last_fire_at_ms,
        last_task_id=progress.last_task_id,
        buffered_at_ms=progress.buffered_at_ms,
        failure_count=progress.failure_count,
        created_at_ms=schedule.created_at_ms,
        changed_at_ms=schedule.changed_at_ms,
        version=schedule.version,
    )


def _shown_spec(spec: ScheduleSpec, *, with_payload: bool) -> pb.ScheduleSpec:
    return pb.ScheduleSpec(
        when=pb.ScheduleRule(
            rule=spec.rule.cron,
            every_ms=spec.rule.every_ms,
            offset_ms=spec.rule.offset_ms,
            zone=spec.rule.zone,
            starts_at_ms=spec.starts_at_ms or 0,
            ends_at_ms=spec.ends_at_ms or 0,
        ),
        target=_shown_target(spec.target, with_payload=with_payload),
        overlap=spec.overlap.upper(),
        max_catchup=spec.max_catchup,
        catchup_window_ms=spec.catchup_window_ms,
        jitter_ms=spec.jitter_ms,
        pause_after_failures=spec.pause_after_failures,
        note=spec.note,
    )


def _shown_target(target: Target, *, with_payload: bool) -> pb.ScheduleTarget:
    is_run = target.spec.kind is TaskKind.WORKFLOW
    return pb.ScheduleTarget(
        type=target.type,
        task_queue=target.queue,
        input=(target.input or b"") if with_payload else b"",
        options=task_view.options(target.spec),
        labels=target.labels or {},
        priority=target.priority,
        external_id=target.external_id,
        on_live=target.on_live.upper() if is_run else "",
    )


def fire(found: Fire) -> pb.Fire:
    """Show a fire, or a range of instants that were skipped."""
    return pb.Fire(
        fire_id=found.id,
        schedule_id=found.schedule_id,
        key=found.key,
        kind=found.kind.upper(),
        fire_at_ms=found.fire_at_ms,
        recorded_at_ms=found.recorded_at_ms,
        lateness_ms=found.lateness_ms,
        task_id=found.task_id or "",
        outcome=(found.outcome or "").upper(),
        settled_at_ms=found.settled_at_ms or 0,
        reason=found.reason or "",
        until_ms=found.until_ms if found.reason is not None else 0,
        count=found.count,
        is_count_exact=found.is_count_exact,
    )


def planned(fire: PlannedFire) -> pb.PlannedFire:
    """Show an instant at which a rule fires."""
    return pb.PlannedFire(fire_at_ms=fire.fire_at_ms, local_time=fire.local)
