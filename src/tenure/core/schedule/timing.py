"""Which ticks a schedule has: those of its rule, between its start and its end."""

from __future__ import annotations

import msgspec

from tenure.core.limits import TICKS_COUNTED_MAX, TICKS_END_MS
from tenure.core.schedule.record import Rule, Schedule, ScheduleSpec, ScheduleState
from tenure.core.schedule.ticks import Ticks, count, of_cron, of_interval
from tenure.errors import InvalidArgument


class BoundedTicks(msgspec.Struct, frozen=True):
    """The ticks of a rule from the first to the last instant at which its schedule may fire."""

    ticks: Ticks
    starts_at_ms: int
    ends_at_ms: int

    def after(self, at_ms: int) -> int | None:
        """Return the first tick after an instant."""
        found = self.ticks.after(max(at_ms, self.starts_at_ms - 1))
        return found if found is not None and found <= self.ends_at_ms else None

    def until(self, at_ms: int) -> int | None:
        """Return the newest tick at or before an instant."""
        found = self.ticks.until(min(at_ms, self.ends_at_ms))
        return found if found is not None and found >= self.starts_at_ms else None

    def count(self, after_ms: int, until_ms: int, most: int) -> int:
        """Return the number of ticks in ``(after, until]``, or ``most`` if there are more."""
        first_ms = max(after_ms, self.starts_at_ms - 1)
        return count(self.ticks, first_ms, min(until_ms, self.ends_at_ms), most)


class TickRange(msgspec.Struct, frozen=True, gc=False):
    """Ticks in a row: the first, the last, and how many or at least how many."""

    first_ms: int
    last_ms: int
    count: int
    is_exact: bool = True


def ticks_of(spec: ScheduleSpec) -> Ticks:
    """Return the ticks of a schedule, or raise what is wrong with its rule."""
    ticks = rule_ticks(spec.rule)
    if spec.starts_at_ms is None and spec.ends_at_ms is None:
        return ticks
    ends_at_ms = TICKS_END_MS if spec.ends_at_ms is None else spec.ends_at_ms
    return BoundedTicks(ticks, spec.starts_at_ms or 0, ends_at_ms)


def rule_ticks(rule: Rule) -> Ticks:
    """Return the ticks of a rule, or raise what is wrong with it."""
    if rule.cron:
        return of_cron(rule.cron, rule.zone)
    return of_interval(rule.every_ms, rule.offset_ms)


def range_of(ticks: Ticks, *, after_ms: int, until_ms: int) -> TickRange | None:
    """Return the ticks in ``(after_ms, until_ms]`` if there are any, counted up to a limit."""
    first_ms, last_ms = ticks.after(after_ms), ticks.until(until_ms)
    if first_ms is None or last_ms is None or first_ms > until_ms:
        return None
    most = TICKS_COUNTED_MAX
    if isinstance(ticks, BoundedTicks):
        found = ticks.count(after_ms, until_ms, most + 1)
    else:
        found = count(ticks, after_ms, until_ms, most + 1)
    return TickRange(first_ms, last_ms, min(found, most), found <= most)


def next_tick_ms(schedule: Schedule, now_ms: int) -> int | None:
    """Return the next tick that will fire, as far as is known; one that waits is none."""
    if schedule.state is not ScheduleState.ACTIVE:
        return None
    try:
        return ticks_of(schedule.spec).after(max(schedule.progress.fired_until_ms, now_ms))
    except InvalidArgument:
        return None
