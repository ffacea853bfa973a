"""What a look at a due schedule decides: which ticks fire, which are skipped, when to look again.

Missed ticks come first (``_choose``), then the overlap policy (``_sort``).
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
from tenure.core.schedule.record import (
    Fire,
    FireKind,
    Overlap,
    Progress,
    Schedule,
    ScheduleState,
    SkipReason,
)
from tenure.core.schedule.ticks import Ticks, between, newest
from tenure.core.schedule.timing import TickRange, range_of

# Until Python 3.12 members of an enum are found by a Python function.
_ACTIVE: Final = ScheduleState.ACTIVE
_TICK: Final = FireKind.TICK
_ALLOW: Final = Overlap.ALLOW


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
    reason: SkipReason = SkipReason.OVERLAP


def broken(schedule: Schedule, error: str) -> Schedule:
    """Return a schedule that fires nothing until somebody has looked at its error."""
    text = error.encode()[:SCHEDULE_ERROR_BYTES_MAX].decode(errors="ignore") or "unknown"
    progress = replace(schedule.progress, error=text)
    return replace(schedule, state=ScheduleState.BROKEN, progress=progress, due_at_ms=None)


def go_on(
    schedule: Schedule, progress: Progress, ticks: Ticks, *, now_ms: int, pause_ms: int = 0
) -> Schedule:
    """Return an active schedule with its progress and next look, or one that has ended.

    The next look comes when ``pause_ms`` are over, or later.
    """
    next_ms = ticks.after(progress.fired_until_ms)
    if progress.buffered_at_ms:
        waiting_ms = now_ms + OVERLAP_LOOK_MS
        next_ms = waiting_ms if next_ms is None else min(next_ms, waiting_ms)
    if next_ms is None:
        return replace(schedule, state=ScheduleState.ENDED, progress=progress, due_at_ms=None)
    look_ms = max(next_ms, now_ms + pause_ms)
    return replace(schedule, state=_ACTIVE, progress=progress, due_at_ms=look_ms)


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


class _View(NamedTuple):
    """A look at a schedule: what the scheduler knows, the ticks, and the time."""

    schedule: Schedule
    event: Looked
    ticks: Ticks
    now_ms: int

    def skip(self, found: TickRange, reason: SkipReason) -> Fire:
        """Return what is recorded of a range of ticks that do not fire."""
        fire_id = self.event.new_id()
        return skipped(self.schedule, found, reason, fire_id=fire_id, now_ms=self.now_ms)


def fire(schedule: Schedule, event: Looked, ticks: Ticks, now_ms: int) -> ScheduleDecision:
    """Return what fires at a look, and what does not."""
    view, skips, chosen = _choose(_View(schedule, event, ticks, now_ms))
    waiting_ms = view.schedule.progress.buffered_at_ms
    queue = [waiting_ms, *chosen] if waiting_ms else chosen
    if event.fired:
        queue = [each for each in queue if each not in event.fired]
    found = _sort(view, queue)
    if found.skipped:
        skips += _skip_sorted(view, found)
    firings = [_fired(view, each) for each in found.firing]
    progress = _advanced(view.schedule.progress, chosen, firings, found.waiting_ms)
    pause_ms = FIRE_PACE_MS * max(1, len(firings))
    is_cancel = found.waiting_ms and schedule.spec.overlap is Overlap.CANCEL_PREVIOUS
    return ScheduleDecision(
        go_on(view.schedule, progress, ticks, now_ms=now_ms, pause_ms=pause_ms),
        fires=(*skips, *firings),
        starts=() if event.owner_id else tuple(firings),
        cancel_id=progress.last_task_id if is_cancel else "",
    )


def _skip_sorted(view: _View, found: _Sorted) -> list[Fire]:
    """Return what is recorded of ticks that did not fire; ranges never overlap.

    A tick that has waited is a range of its own: what came behind it may be skipped already,
    because it was missed or because the rule was replaced.
    """
    row = sorted(found.skipped)
    first = int(row[0] == view.schedule.progress.buffered_at_ms)
    return [
        view.skip(TickRange(some[0], some[-1], len(some)), found.reason)
        for some in (row[:first], row[first:])
        if some
    ]


def _advanced(
    progress: Progress, chosen: list[int], firings: list[Fire], waiting_ms: int
) -> Progress:
    """Return the progress behind the ticks of a look."""
    until_ms = chosen[-1] if chosen else progress.fired_until_ms
    if not firings:
        return replace(progress, fired_until_ms=until_ms, buffered_at_ms=waiting_ms, is_held=False)
    last = firings[-1]
    return replace(
        progress,
        fired_until_ms=until_ms,
        last_fire_at_ms=last.fire_at_ms,
        last_task_id=last.task_id or "",
        buffered_at_ms=waiting_ms,
        is_held=False,
    )


def _choose(view: _View) -> tuple[_View, list[Fire], list[int]]:
    """Return which missed ticks fire now, the oldest first, and what is skipped before them.

    What was chosen once stays chosen for a minute: it fires at a pace, while more ticks come.
    """
    schedule, event, ticks, now_ms = view
    mark_ms, until_ms = schedule.progress.fired_until_ms, schedule.progress.chosen_until_ms
    most = MAX_CATCHUP_MAX
    if schedule.spec.overlap is _ALLOW:
        # A live run with the external id changes what the next tick does.
        most = 1 if schedule.spec.target.external_id else event.room
    if mark_ms < until_ms and now_ms - until_ms <= LATE_TICK_MS:
        return view, [], between(ticks, mark_ms, until_ms, most)
    last_ms = ticks.until(now_ms)
    if last_ms is None or last_ms <= mark_ms:
        return view, [], []
    if _is_alone(view, last_ms):
        return view, [], [last_ms]
    early_ms = _early_ms(view)
    chosen = _newest(view, early_ms, last_ms)
    begin_ms = chosen[0] - 1 if chosen else last_ms
    skips = _skip_missed(view, early_ms=min(early_ms, begin_ms), begin_ms=begin_ms)
    progress = replace(
        schedule.progress, fired_until_ms=begin_ms, chosen_until_ms=chosen[-1] if chosen else 0
    )
    return view._replace(schedule=replace(schedule, progress=progress)), skips, chosen[:most]


def _is_alone(view: _View, last_ms: int) -> bool:
    """Tell whether there is one tick, which was not missed; it is nearly always so."""
    mark_ms = view.schedule.progress.fired_until_ms
    return view.now_ms - last_ms <= LATE_TICK_MS and view.ticks.after(mark_ms) == last_ms


def _early_ms(view: _View) -> int:
    """Return the instant up to which ticks are too old to fire: the mark, or before the window."""
    mark_ms, window_ms = view.schedule.progress.fired_until_ms, view.schedule.spec.catchup_window_ms
    return mark_ms if window_ms is None else max(mark_ms, view.now_ms - window_ms - 1)


def _newest(view: _View, early_ms: int, last_ms: int) -> list[int]:
    """Return the newest ticks that may fire; the last one does if it is only just late."""
    most = view.schedule.spec.max_catchup
    is_recent = view.now_ms - last_ms <= LATE_TICK_MS
    chosen = newest(view.ticks, early_ms, view.now_ms, max(most, 1) if is_recent else most)
    return [last_ms] if is_recent and not chosen else chosen


def _skip_missed(view: _View, *, early_ms: int, begin_ms: int) -> list[Fire]:
    """Return what is recorded of the ticks before the window, and of those beyond the limit."""
    mark_ms = view.schedule.progress.fired_until_ms
    early, late = SkipReason.CATCHUP_WINDOW, SkipReason.CATCHUP_LIMIT
    if view.schedule.progress.is_held:
        early = late = SkipReason.DISABLED
    skips = []
    for after_ms, until_ms, reason in ((mark_ms, early_ms, early), (early_ms, begin_ms, late)):
        found = range_of(view.ticks, after_ms=after_ms, until_ms=until_ms)
        if found is not None:
            skips.append(view.skip(found, reason))
    return skips


def _sort(view: _View, queue: list[int]) -> _Sorted:
    """Sort ticks by the overlap policy, then by whether a live run has the external id."""
    schedule, event = view.schedule, view.event
    if schedule.spec.overlap is _ALLOW:
        found = _Sorted(queue)
    else:
        found = _part(schedule.spec.overlap, queue, is_free=not event.is_last_live)
    if found.firing and event.owner_id and schedule.spec.target.on_live is OnLive.REJECT:
        rejected = (*found.firing, *found.skipped)
        return _Sorted((), rejected, found.waiting_ms, SkipReason.EXTERNAL_ID)
    return found


def _part(policy: Overlap, queue: list[int], *, is_free: bool) -> _Sorted:
    """Sort ticks by a policy that looks at the last task; ``is_free`` says that it has ended."""
    if not queue:
        return _Sorted(())
    match policy:
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


def _fired(view: _View, at_ms: int) -> Fire:
    schedule, event = view.schedule, view.event
    planned = Planned(_TICK, fire_key(schedule.id, at_ms), at_ms)
    return made(schedule, planned, now_ms=view.now_ms, new_id=event.new_id, task_id=event.owner_id)
