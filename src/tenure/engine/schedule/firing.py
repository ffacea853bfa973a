"""The commands of schedulers: fire what is due, and note how the tasks of fires have ended."""

from __future__ import annotations

from typing import Final

import structlog
from msgspec.structs import replace

from tenure.core.limits import FIRE_ROUND_MS_MAX, FIRED_BYTES_MAX, FIRES_PER_LOOK_MAX
from tenure.core.schedule import decide as schedule_rules
from tenure.core.schedule import event as schedule_event
from tenure.core.schedule.look import ScheduleDecision
from tenure.core.schedule.record import Fire, FireOutcome, Schedule, ScheduleState
from tenure.core.task import event as task_event
from tenure.core.task.record import TERMINAL, TaskState
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.schedule import command as c
from tenure.engine.schedule.handler import change
from tenure.engine.schedule.start import live_owner_id, start
from tenure.errors import Rejection
from tenure.store.table.fire import ScheduleKey

log = structlog.get_logger("tenure.engine")
# Until Python 3.12 members of an enum are found by a Python function.
_BROKEN: Final = ScheduleState.BROKEN
_NONE: Final[frozenset[int]] = frozenset()
_OUTCOMES: Final = {
    TaskState.SUCCEEDED: FireOutcome.SUCCEEDED,
    TaskState.FAILED: FireOutcome.FAILED,
    TaskState.CANCELLED: FireOutcome.CANCELLED,
}


def fire_schedules(ws: WorkingSet, command: c.FireSchedules) -> c.FireRound:
    """Look at schedules that are due, until as much has fired as one round may."""
    schedules, ends_at_mono_ms = ws.schedules, ws.clock.monotonic_ms() + FIRE_ROUND_MS_MAX
    work = schedules.work
    room, room_bytes = command.fires_max, FIRED_BYTES_MAX
    count = 0
    for key in work.due:
        if room <= 0 or room_bytes <= 0 or ws.clock.monotonic_ms() >= ends_at_mono_ms:
            break
        count += 1
        schedule = schedules.get(key)
        if schedule is None or not _is_due(ws, schedule):
            continue
        size = len(schedule.spec.target.input or b"")
        most = min(room, FIRES_PER_LOOK_MAX, max(1, room_bytes // size) if size else room)
        decision = _look(ws, schedule, most)
        _apply(ws, decision)
        room -= len(decision.starts)
        room_bytes -= size * len(decision.starts)
    is_cut = count < len(work.due)
    return c.FireRound(count, command.fires_max - room, has_more=is_cut or count >= command.amount)


def _is_due(ws: WorkingSet, schedule: Schedule) -> bool:
    """Tell whether a schedule is still due after earlier commands of the batch."""
    if schedule.state is _BROKEN and schedule.key in ws.schedules.loaded:
        # It was due, and cannot be read here.
        return schedule is ws.schedules.loaded[schedule.key]
    return schedule.due_at_ms is not None and schedule.due_at_ms <= ws.now_ms


def _look(ws: WorkingSet, schedule: Schedule, room: int) -> ScheduleDecision:
    """Decide what fires. Whatever goes wrong with one schedule stops no other."""
    if schedule.state is _BROKEN:
        return ScheduleDecision(schedule)
    namespace = schedule.namespace
    last = ws.tasks.get((namespace, schedule.progress.last_task_id))
    fired = ws.schedules.work.ticks.get(schedule.key)
    event = schedule_event.Looked(
        new_id=ws.clock.new_id,
        room=room,
        is_disabled=namespace in ws.namespaces.disabled,
        is_last_live=last is not None and last.state not in TERMINAL,
        fired=frozenset(fired) if fired else _NONE,
        owner_id=live_owner_id(ws, schedule),
    )
    try:
        decision = schedule_rules.decide(schedule, event, ws.now_ms)
    except Exception as error:
        log.exception("schedule.failed", namespace=namespace, schedule=schedule.id)
        found = schedule_event.BreakFound(f"{type(error).__name__}: {error}")
        decision = schedule_rules.decide(schedule, found, ws.now_ms)
    # It is active, which every look accepts.
    assert not isinstance(decision, Rejection)
    return decision


def _apply(ws: WorkingSet, decision: ScheduleDecision) -> None:
    schedule = decision.schedule
    schedules = ws.schedules
    schedules.put(schedule)
    schedules.work.appended += decision.fires
    for fire in decision.starts:
        start(ws, schedule, fire)
    if decision.cancel_id:
        _cancel(ws, (schedule.namespace, decision.cancel_id), schedule)


def _cancel(ws: WorkingSet, key: tuple[str, str], schedule: Schedule) -> None:
    """Ask the task of an earlier tick to end; it may have been asked before."""
    task = ws.tasks.get(key)
    if task is not None and task.state not in TERMINAL and not task.is_cancel_requested:
        reason = f"The next tick of schedule {schedule.id} has come."
        ws.apply(key, task_event.CancelRequested(reason=reason))


def break_schedule(ws: WorkingSet, command: c.BreakSchedule) -> bool:
    """Set a schedule broken that is still active."""
    schedule = ws.schedules.get((command.namespace, command.schedule_id))
    if schedule is None or schedule.state is not ScheduleState.ACTIVE:
        return False
    change(ws, schedule, schedule_event.BreakFound(command.error))
    return True


def settle_fires(ws: WorkingSet, command: c.SettleFires) -> int:
    """Fill in how tasks have ended, and let their schedules hear of it in the order of the ends."""
    ended: dict[ScheduleKey, list[tuple[int, FireOutcome]]] = {}
    count = 0
    for item in dict.fromkeys(command.items):
        outcome, at_ms = _end_of(ws, item)
        fires = [] if outcome is None else _open_fires(ws, item)
        if outcome is None or not fires:
            continue
        settled = [replace(x, outcome=outcome, settled_at_ms=ws.now_ms) for x in fires]
        ws.schedules.work.settled += settled
        count += len(fires)
        ended.setdefault((item.namespace, item.schedule_id), []).append((at_ms, outcome))
    for key, ends in ended.items():
        if key in ws.schedules:
            outcomes = tuple([outcome for _, outcome in sorted(ends)])
            change(ws, ws.schedules[key], schedule_event.TasksEnded(outcomes))
    return count


def _end_of(ws: WorkingSet, item: c.EndedFire) -> tuple[FireOutcome | None, int]:
    """Return how and when a task has ended; one that was removed has, one that is live not."""
    task = ws.tasks.get((item.namespace, item.task_id))
    if task is None:
        return FireOutcome.UNKNOWN, ws.now_ms
    return _OUTCOMES.get(task.state), task.finished_at_ms or ws.now_ms


def _open_fires(ws: WorkingSet, item: c.EndedFire) -> list[Fire]:
    """Return the fires of a task; with an external id it may be that of other schedules too."""
    found = ws.schedules.work.open_fires.get((item.namespace, item.task_id), ())
    return [fire for fire in found if fire.schedule_id == item.schedule_id]


def wake_schedules(ws: WorkingSet, command: c.WakeSchedules) -> str:
    """Let schedules look again that could not fire while their namespace was disabled."""
    active = ws.schedules.work.active
    for key in active:
        schedule = ws.schedules.get(key)
        if schedule is not None and schedule.state is ScheduleState.ACTIVE:
            change(ws, schedule, schedule_event.NamespaceEnabled())
    return active[-1][1] if len(active) >= command.amount else ""
