"""What a look at a due schedule decides: which ticks fire, which are skipped, when to look again.

Missed ticks come first (``_choose``), then the overlap policy (``_fire_all``, ``_fire_one``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from tenure.core.limits import (
    FIRE_PACE_MS,
    LATE_TICK_MS,
    MAX_CATCHUP_MAX,
    OVERLAP_LOOK_MS,
    SCHEDULE_ERROR_BYTES_MAX,
)
from tenure.core.run.external_id import OnLive
from tenure.core.schedule.event import Looked, NewId
from tenure.core.schedule.origin import fire_key, skip_key
from tenure.core.schedule.record import Fire, FireKind, Overlap, Schedule, ScheduleState, SkipReason
from tenure.core.schedule.ticks import Ticks, between, newest
from tenure.core.schedule.timing import TickRange, range_of

_ACTIVE: Final = ScheduleState.ACTIVE


class ScheduleDecision(msgspec.Struct, frozen=True, gc=False):
    """How an accepted event changes a schedule.

    ``fires`` are written with it; of each of ``starts``, which are among them, the task is made.
    ``cancel_id`` is a task that is asked to end.
    """

    schedule: Schedule
    fires: tuple[Fire, ...] = ()
    starts: tuple[Fire, ...] = ()
    cancel_id: str = ""


class _Sorted(msgspec.Struct, frozen=True, gc=False):
    """Ticks by what becomes of them: some fire, some are skipped, one may wait."""

    firing: Sequence[int]
    skipped: Sequence[int] = ()
    waiting_ms: int = 0


def broken(schedule: Schedule, error: str) -> Schedule:
    """Return a schedule that fires nothing until somebody has looked at its error."""
    text = error.encode()[:SCHEDULE_ERROR_BYTES_MAX].decode(errors="ignore") or "unknown"
    progress = replace(schedule.progress, error=text)
    return replace(schedule, state=ScheduleState.BROKEN, progress=progress, due_at_ms=None)


def go_on(schedule: Schedule, ticks: Ticks, now_ms: int, *, pause_ms: int = 0) -> Schedule:
    """Return an active schedule with the time of its next look, or one that has ended.

    The next look comes when ``pause_ms`` are over, or later.
    """
    progress = schedule.progress
    next_ms = ticks.after(progress.fired_until_ms)
    if progress.buffered_at_ms:
        look_ms = now_ms + OVERLAP_LOOK_MS
        next_ms = look_ms if next_ms is None else min(next_ms, look_ms)
    if next_ms is None:
        return replace(schedule, state=ScheduleState.ENDED, due_at_ms=None)
    return replace(schedule, state=_ACTIVE, due_at_ms=max(next_ms, now_ms + pause_ms))


def skipped(
    schedule: Schedule, found: TickRange, reason: SkipReason, *, fire_id: str, now_ms: int
) -> Fire:
    """Return what is recorded of a range of ticks that do not fire."""
    return Fire(
        id=fire_id,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        key=skip_key(schedule.id, fire_id),
        kind=FireKind.SKIPPED,
        fire_at_ms=found.first_ms,
        until_ms=found.last_ms,
        recorded_at_ms=now_ms,
        reason=reason,
        count=found.count,
        is_count_exact=found.is_exact,
    )


def fire(schedule: Schedule, event: Looked, ticks: Ticks, now_ms: int) -> ScheduleDecision:
    """Return what fires at a look, and what does not."""
    schedule, skips, chosen = _choose(schedule, event.new_id, ticks, now_ms)
    progress, target = schedule.progress, schedule.spec.target
    is_allowed = schedule.spec.overlap is Overlap.ALLOW
    if is_allowed:
        # A live run with the external id changes what the next tick does.
        chosen = chosen[: 1 if target.external_id else event.room]
    waiting = [progress.buffered_at_ms] if progress.buffered_at_ms else []
    queue = [each for each in (*waiting, *chosen) if each not in event.fired]
    parted = (
        _Sorted(queue) if is_allowed else _part(schedule, queue, is_free=not event.is_last_live)
    )
    reason, firing = SkipReason.OVERLAP, parted.firing
    fires = list(skips)
    if firing and event.owner_id and target.on_live is OnLive.REJECT:
        parted = _Sorted((), (*firing, *parted.skipped), parted.waiting_ms)
        reason, firing = SkipReason.EXTERNAL_ID, ()
    if parted.skipped:
        row = parted.skipped
        found = TickRange(row[0], row[-1], len(row))
        fires.append(skipped(schedule, found, reason, fire_id=event.new_id(), now_ms=now_ms))
    made = [_fired(schedule, each, event, now_ms) for each in firing]
    progress = replace(
        progress,
        fired_until_ms=chosen[-1] if chosen else progress.fired_until_ms,
        buffered_at_ms=parted.waiting_ms,
        last_fire_at_ms=firing[-1] if firing else progress.last_fire_at_ms,
        last_task_id=made[-1].task_id or "" if made else progress.last_task_id,
        is_held=False,
    )
    is_cancel = parted.waiting_ms and schedule.spec.overlap is Overlap.CANCEL_PREVIOUS
    looked = replace(schedule, progress=progress)
    return ScheduleDecision(
        go_on(looked, ticks, now_ms, pause_ms=FIRE_PACE_MS * max(1, len(made))),
        fires=(*fires, *made),
        starts=() if event.owner_id else tuple(made),
        cancel_id=progress.last_task_id if is_cancel else "",
    )


def _choose(
    schedule: Schedule, new_id: NewId, ticks: Ticks, now_ms: int
) -> tuple[Schedule, list[Fire], list[int]]:
    """Return which missed ticks fire, the oldest first, and those that are skipped before them.

    What was chosen once stays chosen for a minute: it fires at a pace, while more ticks come.
    """
    spec, progress = schedule.spec, schedule.progress
    mark_ms, until_ms = progress.fired_until_ms, progress.chosen_until_ms
    if mark_ms < until_ms and now_ms - until_ms <= LATE_TICK_MS:
        amount = MAX_CATCHUP_MAX
        return schedule, [], between(ticks, mark_ms, until_ms, amount)
    last_ms = ticks.until(now_ms)
    if last_ms is None or last_ms <= mark_ms:
        return schedule, [], []
    window_ms = spec.catchup_window_ms
    early_ms = mark_ms if window_ms is None else max(mark_ms, now_ms - window_ms - 1)
    is_recent = now_ms - last_ms <= LATE_TICK_MS
    amount = max(spec.max_catchup, 1) if is_recent else spec.max_catchup
    chosen = newest(ticks, early_ms, now_ms, amount)
    if not chosen and is_recent:
        chosen = [last_ms]
    begin_ms = chosen[0] - 1 if chosen else last_ms
    skips = []
    early_reason, late_reason = SkipReason.CATCHUP_WINDOW, SkipReason.CATCHUP_LIMIT
    if progress.is_held:
        early_reason = late_reason = SkipReason.DISABLED
    for after_ms, end_ms, reason in (
        (mark_ms, min(early_ms, begin_ms), early_reason),
        (early_ms, begin_ms, late_reason),
    ):
        found = range_of(ticks, after_ms=after_ms, until_ms=end_ms) if after_ms < end_ms else None
        if found is not None:
            skips.append(skipped(schedule, found, reason, fire_id=new_id(), now_ms=now_ms))
    progress = replace(
        progress, fired_until_ms=begin_ms, chosen_until_ms=chosen[-1] if chosen else 0
    )
    return replace(schedule, progress=progress), skips, chosen


def _part(schedule: Schedule, queue: list[int], *, is_free: bool) -> _Sorted:
    """Part ticks by the overlap policy; ``is_free`` says that the last task has ended."""
    if not queue:
        return _Sorted(())
    match schedule.spec.overlap:
        case Overlap.CANCEL_PREVIOUS:
            if is_free:
                return _Sorted(queue[-1:], queue[:-1])
            return _Sorted((), queue[:-1], queue[-1])
        case Overlap.BUFFER_ONE:
            firing, rest = (queue[:1], queue[1:]) if is_free else ([], queue)
            return _Sorted(firing, rest[:-1], rest[-1] if rest else 0)
        case _:
            return _Sorted(queue[:1], queue[1:]) if is_free else _Sorted((), queue)


class Planned(NamedTuple):
    """What fires: why, under which key, and for which instant."""

    kind: FireKind
    key: str
    at_ms: int


def made(
    schedule: Schedule, planned: Planned, *, now_ms: int, new_id: NewId, task_id: str = ""
) -> Fire:
    """Return what is recorded of a fire that starts a task, or of one that finds a live run."""
    return Fire(
        id=new_id(),
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        key=planned.key,
        kind=planned.kind,
        fire_at_ms=planned.at_ms,
        until_ms=planned.at_ms,
        recorded_at_ms=now_ms,
        task_id=task_id or new_id(),
    )


def _fired(schedule: Schedule, at_ms: int, event: Looked, now_ms: int) -> Fire:
    planned = Planned(FireKind.TICK, fire_key(schedule.id, at_ms), at_ms)
    return made(schedule, planned, now_ms=now_ms, new_id=event.new_id, task_id=event.owner_id)
