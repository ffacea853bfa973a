"""Commands of clients about schedules: each becomes an event, and its answer what was decided."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenure.core.access.audit import AuditAction
from tenure.core.limits import (
    AUDIT_DETAIL_BYTES_MAX,
    BACKFILL_BYTES_MAX,
    BACKFILL_SEEN_MAX,
    BACKFILL_TICKS_MAX,
    SCHEDULES_MAX,
)
from tenure.core.schedule import check as rules
from tenure.core.schedule import decide as schedule_rules
from tenure.core.schedule import event as schedule_event
from tenure.core.schedule import look
from tenure.core.schedule.event import ScheduleEvent
from tenure.core.schedule.look import Planned
from tenure.core.schedule.origin import fire_key, trigger_key
from tenure.core.schedule.record import Fire, FireKind, Schedule, ScheduleSpec
from tenure.core.schedule.ticks import between
from tenure.core.schedule.timing import ticks_of
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.schedule import command as c
from tenure.engine.schedule.start import launch
from tenure.engine.task.handler import not_found
from tenure.errors import AlreadyExists, InvalidArgument, PayloadTooLarge, RateLimited, Rejection
from tenure.store.table.fire import ScheduleKey

# Schedules of a full namespace are removed by people.
_FULL_RETRY_MS: Final = 60_000


def create_schedule(ws: WorkingSet, command: c.CreateSchedule) -> c.Stored:
    """Store a schedule; the same content again changes nothing."""
    spec = _settled(command.spec)
    known = ws.schedules.get((command.namespace, command.schedule_id))
    if known is None:
        return _create(ws, command, spec)
    if known.spec != spec:
        message = (
            f"Schedule {known.id} already exists with other content. "
            "Use another id, or put the new content."
        )
        raise AlreadyExists(message)
    return c.Stored(known)


def put_schedule(ws: WorkingSet, command: c.PutSchedule) -> c.Stored:
    """Store a schedule, or replace its content."""
    spec = _settled(command.spec)
    known = ws.schedules.get((command.namespace, command.schedule_id))
    if known is None:
        return _create(ws, command, spec)
    rules.check_future(spec, ws.now_ms)
    event = schedule_event.Replaced(new_id=ws.clock.new_id, spec=spec)
    put = change(ws, known, event)
    if put is known:
        return c.Stored(known)
    ws.schedules.work.replaced.add(put.key)
    _record(ws, AuditAction.SCHEDULE_PUT, command.actor, put, put.spec.target.type)
    return c.Stored(put, is_changed=True)


def _settled(spec: ScheduleSpec) -> ScheduleSpec:
    """Return a content in the form in which it is stored and compared."""
    if spec.target.labels is None or spec.target.labels:
        return spec
    return replace(spec, target=replace(spec.target, labels=None))


def _create(
    ws: WorkingSet, command: c.CreateSchedule | c.PutSchedule, spec: ScheduleSpec
) -> c.Stored:
    namespace, work = command.namespace, ws.schedules.work
    if not ws.namespaces.exists(namespace):
        raise not_found("Namespace", namespace)
    ws.check_enabled(namespace)
    rules.check_future(spec, ws.now_ms)
    if work.counts.get(namespace, 0) + work.more.get(namespace, 0) >= SCHEDULES_MAX:
        message = f"Namespace {namespace} has {SCHEDULES_MAX} schedules. Remove unused ones."
        raise RateLimited(message, retry_after_ms=_FULL_RETRY_MS)
    new = schedule_rules.create(
        spec,
        namespace=namespace,
        schedule_id=command.schedule_id or ws.clock.new_id(),
        now_ms=ws.now_ms,
        ahead_until_ms=_ahead_ms(ws, (namespace, command.schedule_id)),
    )
    ws.schedules.add(new)
    work.more[namespace] = work.more.get(namespace, 0) + 1
    _record(ws, AuditAction.SCHEDULE_PUT, command.actor, new, spec.target.type)
    return c.Stored(new, is_new=True, is_changed=True)


def _ahead_ms(ws: WorkingSet, key: ScheduleKey) -> int:
    """Return until when ticks after now may have fired: the clock can have been ahead before."""
    newest_ms = max(ws.schedules.work.ticks.get(key, ()), default=0)
    removed = ws.schedules.removed.get(key)
    if removed is not None:
        progress = removed.progress
        newest_ms = max(newest_ms, progress.fired_until_ms, progress.ahead_until_ms)
    return newest_ms if newest_ms > ws.now_ms else 0


def delete_schedule(ws: WorkingSet, command: c.DeleteSchedule) -> Schedule:
    """Remove a schedule; what it has started goes on."""
    schedule, work = _named(ws, command), ws.schedules.work
    ws.schedules.drop(schedule)
    work.more[schedule.namespace] = work.more.get(schedule.namespace, 0) - 1
    _record(ws, AuditAction.SCHEDULE_DELETE, command.actor, schedule)
    return schedule


def pause_schedule(ws: WorkingSet, command: c.PauseSchedule) -> Schedule:
    """Pause a schedule: its row is locked, so nobody fires it now or later."""
    schedule = _named(ws, command)
    paused = change(ws, schedule, schedule_event.PauseRequested(command.note))
    if paused is not schedule:
        _record(ws, AuditAction.SCHEDULE_PAUSE, command.actor, paused, command.note)
    return paused


def resume_schedule(ws: WorkingSet, command: c.ResumeSchedule) -> Schedule:
    """Let a schedule go on."""
    schedule = _named(ws, command)
    event = schedule_event.ResumeRequested(new_id=ws.clock.new_id, mode=command.mode)
    resumed = change(ws, schedule, event)
    if resumed is not schedule:
        _record(ws, AuditAction.SCHEDULE_RESUME, command.actor, resumed, command.mode)
    return resumed


def trigger_schedule(ws: WorkingSet, command: c.TriggerSchedule) -> c.Triggered:
    """Start the task of a schedule once for each id of a trigger."""
    namespace, work = command.namespace, ws.schedules.work
    known = None
    if command.trigger_id:
        key = trigger_key(command.schedule_id, command.trigger_id)
        known = work.fires.get((namespace, key))
    if known is not None:
        return c.Triggered(known, is_new=False)
    schedule = _named(ws, command)
    ws.check_enabled(namespace)
    fire_id = ws.clock.new_id()
    key = trigger_key(schedule.id, command.trigger_id or fire_id)
    fire = _launched(ws, schedule, Planned(FireKind.TRIGGER, key, ws.now_ms))
    work.appended.append(fire)
    work.fires[namespace, fire.key] = fire
    _record(ws, AuditAction.SCHEDULE_TRIGGER, command.actor, schedule)
    return c.Triggered(fire)


def backfill_schedule(ws: WorkingSet, command: c.BackfillSchedule) -> c.Backfilled:
    """Start the tasks of past ticks that have not fired."""
    schedule, work = _named(ws, command), ws.schedules.work
    ws.check_enabled(schedule.namespace)
    ticks = _backfilled_ticks(ws, schedule, command)
    fired = set(work.ticks.get(schedule.key, ()))
    missing = [each for each in ticks if each not in fired]
    if len(missing) * len(schedule.spec.target.input or b"") > BACKFILL_BYTES_MAX:
        message = f"The inputs of {len(missing)} tasks are too large. Backfill a shorter range."
        raise PayloadTooLarge(message, limit=BACKFILL_BYTES_MAX)
    started = [
        _launched(ws, schedule, Planned(FireKind.BACKFILL, fire_key(schedule.id, each), each))
        for each in missing
    ]
    work.appended += started
    work.ticks.setdefault(schedule.key, []).extend(missing)
    _note_ahead(ws, schedule, missing)
    if started:
        detail = f"{len(started)} ticks"
        _record(ws, AuditAction.SCHEDULE_BACKFILL, command.actor, schedule, detail)
    known = [fire_key(schedule.id, each) for each in ticks if each in fired]
    return c.Backfilled(tuple(started), tuple(known))


def _note_ahead(ws: WorkingSet, schedule: Schedule, started: list[int]) -> None:
    """Let looks search for ticks that fire here before they are decided."""
    progress = schedule.progress
    newest_ms = started[-1] if started else 0
    if newest_ms > max(progress.decided_until_ms, progress.ahead_until_ms):
        ahead = replace(progress, ahead_until_ms=newest_ms)
        ws.schedules.put(replace(schedule, progress=ahead))


def _launched(ws: WorkingSet, schedule: Schedule, planned: Planned) -> Fire:
    """Make a fire that somebody asks for, and start its task."""
    fire = look.made(schedule, planned, now_ms=ws.now_ms, new_id=ws.clock.new_id)
    return launch(ws, schedule, fire)


def _backfilled_ticks(ws: WorkingSet, schedule: Schedule, command: c.BackfillSchedule) -> list[int]:
    """Return the ticks of a range, or raise that there are too many."""
    if command.to_ms > ws.now_ms:
        message = "to must not be after now: later ticks fire by themselves."
        raise InvalidArgument(message, field="to")
    most = BACKFILL_TICKS_MAX
    ticks = between(ticks_of(schedule.spec), command.from_ms, command.to_ms, most + 1)
    if len(ticks) > most:
        message = f"The range has more than {most} ticks. Backfill it in parts."
        raise InvalidArgument(message, field="to")
    if len(ws.schedules.work.ticks.get(schedule.key, ())) > BACKFILL_SEEN_MAX:
        message = "An earlier rule has fired too often in this range. Backfill it in parts."
        raise InvalidArgument(message, field="to")
    return ticks


def change(ws: WorkingSet, schedule: Schedule, event: ScheduleEvent) -> Schedule:
    """Apply an event that starts nothing, with the ticks that it skips."""
    decision = schedule_rules.decide(schedule, event, ws.now_ms)
    if isinstance(decision, Rejection):
        raise decision.to_error()
    if decision.schedule is not schedule:
        ws.schedules.work.appended += decision.fires
        ws.schedules.put(decision.schedule)
    return decision.schedule


def _named(
    ws: WorkingSet,
    command: c.DeleteSchedule
    | c.PauseSchedule
    | c.ResumeSchedule
    | c.TriggerSchedule
    | c.BackfillSchedule,
) -> Schedule:
    schedule = ws.schedules.get((command.namespace, command.schedule_id))
    if schedule is None:
        raise not_found("Schedule", command.schedule_id)
    return schedule


def _record(
    ws: WorkingSet, action: AuditAction, actor: str, schedule: Schedule, detail: str = ""
) -> None:
    cut = detail.encode()[:AUDIT_DETAIL_BYTES_MAX].decode(errors="ignore")
    ws.record(action, actor, schedule.id, namespaces=(schedule.namespace,), detail=cut)
