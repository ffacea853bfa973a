"""The machine of schedules: what fires now, what is skipped and why, and when to look again.

``decide`` is total and pure: every event on every schedule gives a ``ScheduleDecision`` or a
``Rejection``. Of all ticks up to the mark it is decided what becomes of them, and of none behind
it. So each tick fires once or is part of one skipped range, whoever looks and how often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tenure.core.limits import DISABLED_LOOK_MS
from tenure.core.schedule import event as schedule_event
from tenure.core.schedule import look
from tenure.core.schedule.event import NewId, ScheduleEvent
from tenure.core.schedule.look import ScheduleDecision, broken, go_on
from tenure.core.schedule.record import (
    Fire,
    FireOutcome,
    Progress,
    ResumeMode,
    Schedule,
    ScheduleSpec,
    ScheduleState,
    SkipReason,
)
from tenure.core.schedule.rule import RULES
from tenure.core.schedule.timing import TickRange, range_of, ticks_of
from tenure.errors import InvalidArgument, Rejection

_ACTIVE: Final = ScheduleState.ACTIVE
_PAUSED: Final = ScheduleState.PAUSED


def decide(schedule: Schedule, event: ScheduleEvent, now_ms: int) -> ScheduleDecision | Rejection:
    """Return how ``event`` changes ``schedule``, or why it is refused."""
    rule = RULES[type(event)]
    if schedule.state not in rule.sources:
        message = f"Schedule {schedule.id} is {schedule.state}."
        return Rejection("wrong_state", message, {"state": schedule.state.upper()})
    decision = _DECIDERS[type(event)](schedule, event, now_ms)
    assert decision.schedule.state in rule.targets
    return decision


def create(
    spec: ScheduleSpec, *, namespace: str, schedule_id: str, now_ms: int, ahead_until_ms: int = 0
) -> Schedule:
    """Return the schedule that a checked content becomes; its ticks count from now on.

    ``ahead_until_ms`` is the last tick that an earlier schedule with the id may have fired.
    """
    fresh = Schedule(
        namespace=namespace,
        id=schedule_id,
        spec=spec,
        progress=Progress(fired_until_ms=now_ms, ahead_until_ms=ahead_until_ms),
        due_at_ms=now_ms,
        created_at_ms=now_ms,
        changed_at_ms=now_ms,
    )
    return go_on(fresh, fresh.progress, ticks_of(spec), now_ms=now_ms)


def _look(schedule: Schedule, event: schedule_event.Looked, now_ms: int) -> ScheduleDecision:
    if event.is_disabled:
        held = replace(schedule.progress, is_held=True)
        return ScheduleDecision(
            replace(schedule, progress=held, due_at_ms=now_ms + DISABLED_LOOK_MS)
        )
    try:
        ticks = ticks_of(schedule.spec)
    except InvalidArgument as error:
        return ScheduleDecision(broken(schedule, error.message))
    return look.fire(schedule, event, ticks, now_ms)


def _pause(
    schedule: Schedule, event: schedule_event.PauseRequested, now_ms: int
) -> ScheduleDecision:
    old = schedule.progress
    if schedule.is_paused and old.pause_note == event.note:
        return ScheduleDecision(schedule)
    paused_at_ms = old.paused_at_ms if schedule.is_paused else now_ms
    progress = replace(old, pause_note=event.note, paused_at_ms=paused_at_ms, error="")
    return ScheduleDecision(
        replace(schedule, state=_PAUSED, progress=progress, due_at_ms=None, changed_at_ms=now_ms)
    )


def _resume(
    schedule: Schedule, event: schedule_event.ResumeRequested, now_ms: int
) -> ScheduleDecision:
    if schedule.state is _ACTIVE:
        return ScheduleDecision(schedule)
    try:
        ticks = ticks_of(schedule.spec)
    except InvalidArgument as error:
        return ScheduleDecision(broken(schedule, error.message))
    progress = replace(
        schedule.progress,
        pause_note="",
        paused_at_ms=0,
        failure_count=0,
        chosen_until_ms=0,
        error="",
    )
    resumed = replace(
        schedule, state=_ACTIVE, progress=progress, due_at_ms=now_ms, changed_at_ms=now_ms
    )
    fires: tuple[Fire, ...] = ()
    if event.mode is ResumeMode.SKIP:
        resumed, waiting = _drop_waiting(resumed, event.new_id, now_ms)
        resumed, missed = _drop(resumed, SkipReason.PAUSED, event.new_id, now_ms)
        fires = (*waiting, *missed)
    return ScheduleDecision(go_on(resumed, resumed.progress, ticks, now_ms=now_ms), fires)


def _drop(
    schedule: Schedule, reason: SkipReason, new_id: NewId, now_ms: int
) -> tuple[Schedule, tuple[Fire, ...]]:
    """Skip all ticks until now that nobody has decided about."""
    mark_ms = schedule.progress.fired_until_ms
    found = range_of(ticks_of(schedule.spec), after_ms=mark_ms, until_ms=now_ms)
    progress = replace(schedule.progress, fired_until_ms=max(mark_ms, now_ms))
    dropped = replace(schedule, progress=progress)
    if found is None:
        return dropped, ()
    return dropped, (look.skipped(schedule, found, reason, fire_id=new_id(), now_ms=now_ms),)


def _drop_waiting(
    schedule: Schedule, new_id: NewId, now_ms: int
) -> tuple[Schedule, tuple[Fire, ...]]:
    """Skip the tick that waits for the end of a task."""
    at_ms = schedule.progress.buffered_at_ms
    if not at_ms:
        return schedule, ()
    dropped = replace(schedule, progress=replace(schedule.progress, buffered_at_ms=0))
    found, reason = TickRange(at_ms, at_ms, 1), SkipReason.PAUSED
    return dropped, (look.skipped(schedule, found, reason, fire_id=new_id(), now_ms=now_ms),)


def _replace(schedule: Schedule, event: schedule_event.Replaced, now_ms: int) -> ScheduleDecision:
    """Take another content. Ticks of an earlier rule that nobody has looked at are skipped."""
    old, spec = schedule, event.spec
    if old.spec == spec and old.state is not ScheduleState.BROKEN:
        return ScheduleDecision(old)
    fires: tuple[Fire, ...] = ()
    if old.spec.timing != spec.timing:
        try:
            old, fires = _drop(old, SkipReason.REPLACED, event.new_id, now_ms)
        except InvalidArgument:
            # A rule that could not be evaluated has no ticks.
            until_ms = max(old.progress.fired_until_ms, now_ms)
            old = replace(old, progress=replace(old.progress, fired_until_ms=until_ms))
    state = _PAUSED if old.is_paused else _ACTIVE
    put = replace(
        old,
        spec=spec,
        state=state,
        progress=replace(old.progress, chosen_until_ms=0, error=""),
        due_at_ms=None if state is _PAUSED else now_ms,
        changed_at_ms=now_ms,
    )
    if state is _ACTIVE:
        put = go_on(put, put.progress, ticks_of(spec), now_ms=now_ms)
    return ScheduleDecision(put, fires)


def _note_ends(
    schedule: Schedule, event: schedule_event.TasksEnded, now_ms: int
) -> ScheduleDecision:
    """Count failures in a row, and look again at once if a tick waits for an end."""
    count = schedule.progress.failure_count
    for outcome in event.outcomes:
        if outcome is FireOutcome.FAILED:
            count += 1
        elif outcome is FireOutcome.SUCCEEDED:
            count = 0
    progress = schedule.progress
    if count != progress.failure_count:
        schedule = replace(schedule, progress=replace(progress, failure_count=count))
    most = schedule.spec.pause_after_failures
    if schedule.state is not _ACTIVE:
        return ScheduleDecision(schedule)
    if most and count >= most:
        note = f"Paused after {count} failures in a row."
        return _pause(schedule, schedule_event.PauseRequested(note), now_ms)
    if progress.buffered_at_ms and schedule.due_at_ms is not None and schedule.due_at_ms > now_ms:
        schedule = replace(schedule, due_at_ms=now_ms)
    return ScheduleDecision(schedule)


def _break(schedule: Schedule, event: schedule_event.BreakFound, now_ms: int) -> ScheduleDecision:
    del now_ms
    return ScheduleDecision(broken(schedule, event.error))


def _enable(
    schedule: Schedule, event: schedule_event.NamespaceEnabled, now_ms: int
) -> ScheduleDecision:
    del event
    if not schedule.progress.is_held:
        return ScheduleDecision(schedule)
    return ScheduleDecision(replace(schedule, due_at_ms=now_ms))


_DECIDERS: Final[dict[type[ScheduleEvent], Callable[[Schedule, Any, int], ScheduleDecision]]] = {
    schedule_event.Looked: _look,
    schedule_event.PauseRequested: _pause,
    schedule_event.ResumeRequested: _resume,
    schedule_event.Replaced: _replace,
    schedule_event.TasksEnded: _note_ends,
    schedule_event.BreakFound: _break,
    schedule_event.NamespaceEnabled: _enable,
}
