"""Checks of commands about schedules: what is wrong is named before anything is loaded."""

from __future__ import annotations

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.schedule import check as rules
from tenure.engine.check import check_namespace
from tenure.engine.schedule import command as c
from tenure.errors import InvalidArgument


def put_schedule(command: c.CreateSchedule | c.PutSchedule) -> None:
    """Check the id, if one is given, and the content."""
    check_namespace(command.namespace)
    if command.schedule_id or type(command) is c.PutSchedule:
        checks.name(command.schedule_id, "scheduleId")
    rules.check_spec(command.spec)


def named_schedule(command: c.DeleteSchedule | c.ResumeSchedule) -> None:
    """Check one schedule by its id."""
    check_namespace(command.namespace)
    checks.name(command.schedule_id, "scheduleId")


def pause_schedule(command: c.PauseSchedule) -> None:
    """Check one schedule, and why it is paused."""
    check_namespace(command.namespace)
    checks.name(command.schedule_id, "scheduleId")
    checks.text(command.note, "note", bytes_max=limits.SCHEDULE_NOTE_BYTES_MAX)


def trigger_schedule(command: c.TriggerSchedule) -> None:
    """Check one schedule, and the caller's id of the trigger."""
    check_namespace(command.namespace)
    checks.name(command.schedule_id, "scheduleId")
    if command.trigger_id:
        checks.name(command.trigger_id, "triggerId")


def backfill_schedule(command: c.BackfillSchedule) -> None:
    """Check one schedule, and the range."""
    check_namespace(command.namespace)
    checks.name(command.schedule_id, "scheduleId")
    checks.instant_ms(command.from_ms, "from")
    checks.instant_ms(command.to_ms, "to")
    if command.to_ms <= command.from_ms:
        message = "to must be after from."
        raise InvalidArgument(message, field="to")
