"""What commands about schedules need to have loaded: pure, one function per kind of need."""

from __future__ import annotations

from tenure.core.schedule.origin import trigger_key
from tenure.engine.schedule import command as c
from tenure.store.table.fire import TickSearch
from tenure.store.table.lock_order import RowSets


def put_schedule(needs: RowSets, command: c.CreateSchedule | c.PutSchedule) -> None:
    """Lock the schedule, if it exists, and how many its namespace has."""
    schedules = needs.schedules
    if command.schedule_id:
        key = (command.namespace, command.schedule_id)
        schedules.wanted.add(key)
        schedules.work.creating.add(key)
    schedules.work.counted.add(command.namespace)
    needs.namespaces.wanted.add(command.namespace)


def named_schedule(
    needs: RowSets, command: c.DeleteSchedule | c.PauseSchedule | c.ResumeSchedule | c.BreakSchedule
) -> None:
    """Lock one schedule: who fires it has locked it too."""
    needs.schedules.work.starting.discard((command.namespace, command.schedule_id))
    needs.schedules.wanted.add((command.namespace, command.schedule_id))


def trigger_schedule(needs: RowSets, command: c.TriggerSchedule) -> None:
    """Lock the schedule, and look for a trigger with the same id."""
    _starting(needs, command)
    if command.trigger_id:
        key = trigger_key(command.schedule_id, command.trigger_id)
        needs.schedules.work.fire_keys.add((command.namespace, key))


def backfill_schedule(needs: RowSets, command: c.BackfillSchedule) -> None:
    """Lock the schedule, and look for ticks of the range that have fired."""
    _starting(needs, command)
    key = (command.namespace, command.schedule_id)
    needs.schedules.work.searches.append(TickSearch(key, command.from_ms, command.to_ms))


def _starting(needs: RowSets, command: c.TriggerSchedule | c.BackfillSchedule) -> None:
    key = (command.namespace, command.schedule_id)
    needs.schedules.wanted.add(key)
    needs.schedules.work.starting.add(key)
    needs.namespaces.wanted.add(command.namespace)


def fire_schedules(needs: RowSets, command: c.FireSchedules) -> None:
    """Lock what is due, and what that depends on."""
    work = needs.schedules.work
    work.due_max, work.only = command.amount, command.only


def settle_fires(needs: RowSets, command: c.SettleFires) -> None:
    """Lock the schedules, and read the tasks, no copies of them, and their fires."""
    schedules = needs.schedules
    for item in command.items:
        task = (item.namespace, item.task_id)
        schedules.wanted.add((item.namespace, item.schedule_id))
        schedules.work.of_tasks.add(task)
        needs.tasks.locked.add(task)


def wake_schedules(needs: RowSets, command: c.WakeSchedules) -> None:
    """Lock some active schedules of the namespace."""
    work = needs.schedules.work
    work.active_of = (command.namespace, command.after_id)
    work.active_max = command.amount
