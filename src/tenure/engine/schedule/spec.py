"""The specs of commands about schedules."""

from __future__ import annotations

from typing import Final

from tenure.core.limits import BACKFILL_TICKS_MAX
from tenure.engine.command_spec import CommandSpec
from tenure.engine.schedule import check, firing, handler, needs
from tenure.engine.schedule import command as c


def _bytes_of(command: c.CreateSchedule | c.PutSchedule) -> int:
    return len(command.spec.target.input or b"")


SCHEDULE_SPECS: Final = (
    CommandSpec(
        c.CreateSchedule,
        check.put_schedule,
        needs.put_schedule,
        handler.create_schedule,
        payload_bytes=_bytes_of,
        is_new_work=True,
    ),
    CommandSpec(
        c.PutSchedule,
        check.put_schedule,
        needs.put_schedule,
        handler.put_schedule,
        payload_bytes=_bytes_of,
        is_new_work=True,
    ),
    CommandSpec(
        c.DeleteSchedule, check.named_schedule, needs.named_schedule, handler.delete_schedule
    ),
    CommandSpec(
        c.PauseSchedule, check.pause_schedule, needs.named_schedule, handler.pause_schedule
    ),
    CommandSpec(
        c.ResumeSchedule, check.named_schedule, needs.named_schedule, handler.resume_schedule
    ),
    CommandSpec(
        c.TriggerSchedule,
        check.trigger_schedule,
        needs.trigger_schedule,
        handler.trigger_schedule,
        is_new_work=True,
    ),
    CommandSpec(
        c.BackfillSchedule,
        check.backfill_schedule,
        needs.backfill_schedule,
        handler.backfill_schedule,
        weigh=lambda _: BACKFILL_TICKS_MAX,
        is_new_work=True,
    ),
    CommandSpec(
        c.FireSchedules,
        needs=needs.fire_schedules,
        handler=firing.fire_schedules,
        weigh=lambda command: command.amount,
    ),
    CommandSpec(c.BreakSchedule, needs=needs.named_schedule, handler=firing.break_schedule),
    CommandSpec(
        c.SettleFires,
        needs=needs.settle_fires,
        handler=firing.settle_fires,
        weigh=lambda command: len(command.items),
    ),
    CommandSpec(
        c.WakeSchedules,
        needs=needs.wake_schedules,
        handler=firing.wake_schedules,
        weigh=lambda command: command.amount,
    ),
)
