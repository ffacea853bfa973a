"""Schedules and their fires as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tenure.cli.show.schedule_view import ShownFire, ShownPlanned, ShownSchedule, ShownTarget
from tenure.cli.show.table import Column
from tenure.cli.show.task_table import ago, labels_text, payload_text
from tenure.cli.show.text import age_text, duration_text, parse_instant_ms, short_id
from tenure.core.limits import MAX_CATCHUP

_UTC: Final = "UTC"


def columns(now_ms: int) -> Sequence[Column[ShownSchedule]]:
    """Return the columns of a list of schedules."""
    return (
        Column("SCHEDULE", lambda schedule: schedule.schedule_id, is_text=True),
        Column("STATE", lambda schedule: schedule.state),
        Column("RULE", rule_text, rank=2, is_text=True),
        Column("TYPE", lambda schedule: schedule.target.type, rank=4, is_text=True),
        Column("NEXT", lambda schedule: _in(schedule.next_fire_at, now_ms), rank=1),
        Column("LAST", lambda schedule: _last(schedule, now_ms), rank=5),
        Column("NOTE", note, rank=3, is_text=True),
    )


def rule_text(schedule: ShownSchedule) -> str:
    """Return when a schedule fires, and in which zone if that is not UTC."""
    if schedule.rule is None:
        offset = f" + {duration_text(schedule.offset)}" if schedule.offset else ""
        return f"every {duration_text(schedule.every or 0)}{offset}"
    zone = "" if schedule.zone == _UTC else f" {schedule.zone}"
    return f"{schedule.rule}{zone}"


def note(schedule: ShownSchedule) -> str:
    """Return what is most worth knowing about a schedule in its present state."""
    if schedule.error:
        return schedule.error
    if schedule.pause_note:
        return schedule.pause_note
    if schedule.failure_count > 1:
        return f"failed {schedule.failure_count} times in a row"
    return schedule.note or ""


def _in(instant: str | None, now_ms: int) -> str:
    if instant is None:
        return ""
    left_ms = parse_instant_ms(instant) - now_ms
    return f"in {duration_text(left_ms)}" if left_ms > 0 else "now"


def _last(schedule: ShownSchedule, now_ms: int) -> str:
    last = schedule.last_fire_at
    return "" if last is None else f"{age_text(last, now_ms)} ago"


def facts(schedule: ShownSchedule, now_ms: int) -> Iterator[tuple[str, object]]:
    """Return what is known of a schedule, the most important first."""
    target = schedule.target
    yield "schedule", schedule.schedule_id
    yield "state", schedule.state
    yield "error", schedule.error
    yield "paused", ago(schedule.paused_at, now_ms)
    yield "pause note", schedule.pause_note
    yield "note", schedule.note
    yield "rule", rule_text(schedule)
    yield "next fire", _coming(schedule.next_fire_at, now_ms)
    yield "last fire", ago(schedule.last_fire_at, now_ms)
    yield f"last {_noun(target)}", schedule.last_task_id
    yield "buffered", ago(schedule.buffered_at, now_ms)
    yield "failures", _failures_text(schedule)
    yield "starts", f"{_noun(target)} {target.type}"
    yield "queue", target.queue
    yield "namespace", schedule.namespace
    yield "overlap", schedule.overlap.lower().replace("_", " ")
    yield "catch-up", _catchup_text(schedule)
    yield "jitter", duration_text(schedule.jitter_ms) if schedule.jitter_ms else ""
    yield "from", schedule.starts_at
    yield "until", schedule.ends_at
    yield "priority", target.priority
    yield "timeouts", _timeouts(target)
    yield "attempts", target.retry.maximum_attempts or "no limit"
    yield "external id", target.external_id
    yield "labels", labels_text(target.labels)
    yield "created", ago(schedule.created_at, now_ms)
    yield "changed", ago(schedule.changed_at, now_ms)
    yield "input", payload_text(target.input, target.input_base64)


def _noun(target: ShownTarget) -> str:
    return "run" if target.workflow else "task"


def _coming(instant: str | None, now_ms: int) -> str | None:
    return None if instant is None else f"{instant} ({_in(instant, now_ms)})"


def _failures_text(schedule: ShownSchedule) -> str:
    most = schedule.pause_after_failures
    if not schedule.failure_count and not most:
        return ""
    limit = f", paused at {most}" if most else ""
    return f"{schedule.failure_count} in a row{limit}"


def _catchup_text(schedule: ShownSchedule) -> str:
    window = schedule.catchup_window_ms
    if schedule.max_catchup == MAX_CATCHUP and window is None:
        return ""
    older = "" if window is None else f", not older than {duration_text(window)}"
    return f"the newest {schedule.max_catchup}{older}"


def _timeouts(target: ShownTarget) -> str:
    known = (
        ("start to close", target.start_to_close_ms),
        ("schedule to close", target.schedule_to_close_ms),
        ("schedule to start", target.schedule_to_start_ms),
        ("heartbeat", target.heartbeat_timeout_ms),
        ("whole run", target.timeout_ms),
    )
    return ", ".join(f"{name} {duration_text(value)}" for name, value in known if value)


def fire_columns() -> Sequence[Column[ShownFire]]:
    """Return the columns of a list of fires."""
    return (
        Column("PLANNED", lambda fire: fire.fire_at),
        Column("KIND", lambda fire: fire.kind, rank=3),
        Column("OUTCOME", outcome_text),
        Column("LATE", _late_text, rank=2),
        Column(
            "TASK",
            lambda fire: fire.task_id,
            rank=1,
            short=lambda fire: short_id(fire.task_id or ""),
        ),
        Column("NOTE", _fire_note, rank=1, is_text=True),
    )


def _late_text(fire: ShownFire) -> str:
    """Return how late a fire was; what is skipped or from the past is not late."""
    return duration_text(fire.lateness_ms) if fire.kind in {"TICK", "TRIGGER"} else ""


def outcome_text(fire: ShownFire) -> str:
    """Return how a fire has ended, or that it goes on."""
    if fire.reason:
        return "SKIPPED"
    return fire.outcome or "STARTED"


def _fire_note(fire: ShownFire) -> str:
    if not fire.reason:
        return ""
    more = "" if fire.is_count_exact else "+"
    if fire.count == 1 and fire.is_count_exact:
        return fire.reason
    return f"{fire.reason}: {fire.count}{more} until {fire.until}"


def plan_columns(now_ms: int) -> Sequence[Column[ShownPlanned]]:
    """Return the columns of a list of instants to come."""
    return (
        Column("UTC", lambda fire: fire.fire_at),
        Column("LOCAL", lambda fire: fire.local),
        Column("IN", lambda fire: _in(fire.fire_at, now_ms).removeprefix("in "), rank=1),
    )
