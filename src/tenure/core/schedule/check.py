"""What the content of a schedule may be: everything is refused before anything is stored."""

from __future__ import annotations

from typing import Final

from tenure.core import check
from tenure.core.limits import (
    CATCHUP_WINDOW_MS_MAX,
    JITTER_MS_MAX,
    MAX_CATCHUP_MAX,
    PAUSE_AFTER_FAILURES_MAX,
    SCHEDULE_NOTE_BYTES_MAX,
)
from tenure.core.run import external_id
from tenure.core.run import start as run_start
from tenure.core.schedule.record import Rule, ScheduleSpec, Target
from tenure.core.schedule.timing import rule_ticks, ticks_of
from tenure.core.schedule.zone import UTC_NAME
from tenure.core.task import enqueue
from tenure.core.task.record import NewTask
from tenure.errors import InvalidArgument

# Each fire has an id of its own.
_SOME_ID: Final = "00000000-0000-0000-0000-000000000000"


def check_rule(rule: Rule) -> None:
    """Refuse what is neither a cron rule in a zone nor an interval."""
    if bool(rule.cron) == bool(rule.every_ms):
        message = "A schedule needs a rule or every, not both."
        raise InvalidArgument(message, field="rule")
    if rule.cron and rule.offset_ms:
        message = "offset belongs to every, not to a rule."
        raise InvalidArgument(message, field="offset")
    if rule.every_ms and rule.zone != UTC_NAME:
        message = "every is aligned to the epoch and has no zone. Use a rule instead."
        raise InvalidArgument(message, field="zone")
    rule_ticks(rule)


def check_spec(spec: ScheduleSpec) -> None:
    """Refuse the first thing that is wrong with the content of a schedule."""
    check_rule(spec.rule)
    _check_target(spec.target)
    check.integer(spec.max_catchup, "maxCatchup", 0, MAX_CATCHUP_MAX)
    if spec.catchup_window_ms is not None:
        check.integer(spec.catchup_window_ms, "catchupWindowMs", 1, CATCHUP_WINDOW_MS_MAX)
    check.integer(spec.jitter_ms, "jitterMs", 0, JITTER_MS_MAX)
    for field, instant_ms in (("startsAt", spec.starts_at_ms), ("endsAt", spec.ends_at_ms)):
        if instant_ms is not None:
            check.instant_ms(instant_ms, field)
    if spec.ends_at_ms is not None and spec.ends_at_ms < (spec.starts_at_ms or 0):
        message = "endsAt must not be before startsAt."
        raise InvalidArgument(message, field="endsAt")
    check.integer(spec.pause_after_failures, "pauseAfterFailures", 0, PAUSE_AFTER_FAILURES_MAX)
    check.text(spec.note, "note", bytes_max=SCHEDULE_NOTE_BYTES_MAX)


def check_future(spec: ScheduleSpec, now_ms: int) -> None:
    """Refuse a schedule that would never fire."""
    if ticks_of(spec).after(now_ms) is None:
        message = "rule has no tick after now, before 2100 and until endsAt"
        raise InvalidArgument(message, field="rule")


def _check_target(target: Target) -> None:
    """Check what a fire starts, as the enqueue of a task or the start of a run."""
    new = NewTask(
        id=_SOME_ID,
        type=target.type,
        queue=target.queue,
        spec=target.spec,
        input=target.input,
        priority=target.priority,
        labels=target.labels,
    )
    if target.is_run:
        run_start.check_new(new)
    else:
        enqueue.check_new(new)
    if not target.external_id:
        return
    if not target.is_run:
        message = "Only a run has an external id."
        raise InvalidArgument(message, field="externalId")
    external_id.check_id(target.external_id)
