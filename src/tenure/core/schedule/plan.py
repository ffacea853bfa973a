"""What a schedule will fire, and how its rule is read where other schedulers read it otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tenure.core.limits import TICKS_END_MS
from tenure.core.schedule import field
from tenure.core.schedule.check import check_rule
from tenure.core.schedule.cron import CronRule, parse
from tenure.core.schedule.preview import PlannedFire, next_fires
from tenure.core.schedule.record import Rule, Schedule, ScheduleState
from tenure.core.schedule.timing import rule_ticks
from tenure.core.schedule.zone import UTC_NAME, find_zone
from tenure.errors import InvalidArgument

_EVERY_WEEKDAY: Final = (1 << field.WEEK) - 1


class Plan(msgspec.Struct, frozen=True, gc=False):
    """The next fires, oldest first, and notes about them for people."""

    fires: list[PlannedFire]
    notes: tuple[str, ...] = ()


def plan(
    rule: Rule, *, starts_at_ms: int | None, ends_at_ms: int | None, after_ms: int, count: int
) -> Plan:
    """Return the next fires of a rule after an instant, between its start and its end.

    Raises `InvalidArgument` with the field that is wrong.
    """
    check_rule(rule)
    ticks, zone = rule_ticks(rule), find_zone(rule.zone)
    first_ms = max(after_ms, (starts_at_ms or 0) - 1)
    last_ms = TICKS_END_MS if ends_at_ms is None else ends_at_ms
    return Plan(next_fires(ticks, zone, first_ms, last_ms, count), tuple(_notes(rule)))


def plan_of(schedule: Schedule, *, now_ms: int, count: int) -> Plan:
    """Return the next fires of a stored schedule; a note says if they will not come."""
    spec = schedule.spec
    try:
        found = plan(
            spec.rule,
            starts_at_ms=spec.starts_at_ms,
            ends_at_ms=spec.ends_at_ms,
            # After the clock was set back the mark is ahead of it.
            after_ms=max(now_ms, schedule.progress.fired_until_ms),
            count=count,
        )
    except InvalidArgument as error:
        if error.fields.get("field") == "count":
            raise
        # A newer server has stored it, or its zone has gone.
        found = Plan([], (error.message,))
    return msgspec.structs.replace(found, notes=(*_obstacles(schedule), *found.notes))


def _obstacles(schedule: Schedule) -> Iterator[str]:
    if schedule.state is ScheduleState.PAUSED:
        yield "The schedule is paused: nothing fires until it is resumed."
    if schedule.state is ScheduleState.BROKEN:
        yield f"The schedule is broken and fires nothing: {schedule.progress.error}"


def _notes(rule: Rule) -> Iterator[str]:
    if not rule.cron:
        return
    read = parse(rule.cron)
    if read.has_either_day:
        yield "Both day fields are restricted: a day that matches either one fires."
    if read.weekdays & _EVERY_WEEKDAY != _EVERY_WEEKDAY:
        yield "Days of the week count from Sunday, which is 0 and 7; Monday is 1."
    if rule.zone != UTC_NAME:
        yield _clock_change(read)


def _clock_change(read: CronRule) -> str:
    if read.is_hourly:
        return (
            "The hour is *: it fires whenever the local clock shows a match, in a repeated hour "
            "twice."
        )
    return (
        "Each matching local time fires once: in a skipped hour when that ends, in a repeated "
        "hour the first time."
    )
