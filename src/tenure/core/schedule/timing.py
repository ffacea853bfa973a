"""Which ticks a schedule has: those of its rule, between its start and its end."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from tenure.core.limits import SKIPPED_COUNTED_MAX
from tenure.core.schedule.record import Rule, ScheduleSpec


class Ticks(Protocol):
    """The planned instants of a rule, found in both directions."""

    def after(self, at_ms: int) -> int | None:
        """Return the first tick after an instant."""
        ...

    def until(self, at_ms: int) -> int | None:
        """Return the last tick that is not after an instant."""
        ...


class Interval(msgspec.Struct, frozen=True, gc=False):
    """Ticks at a fixed distance, aligned to the epoch."""

    every_ms: int
    offset_ms: int = 0

    def after(self, at_ms: int) -> int | None:
        """Return the first tick after an instant."""
        return (at_ms - self.offset_ms) // self.every_ms * self.every_ms + (
            self.offset_ms + self.every_ms
        )

    def until(self, at_ms: int) -> int | None:
        """Return the last tick that is not after an instant."""
        return (at_ms - self.offset_ms) // self.every_ms * self.every_ms + self.offset_ms


class Bounded(msgspec.Struct, frozen=True):
    """The ticks of a rule from the first to the last instant at which its schedule may fire."""

    ticks: Ticks
    starts_at_ms: int
    ends_at_ms: int

    def after(self, at_ms: int) -> int | None:
        """Return the first tick after an instant."""
        found = self.ticks.after(max(at_ms, self.starts_at_ms - 1))
        return found if found is not None and found <= self.ends_at_ms else None

    def until(self, at_ms: int) -> int | None:
        """Return the last tick that is not after an instant."""
        found = self.ticks.until(min(at_ms, self.ends_at_ms))
        return found if found is not None and found >= self.starts_at_ms else None


class Span(msgspec.Struct, frozen=True, gc=False):
    """Some ticks in a row: the first, the last and how many, or at least how many."""

    first_ms: int
    last_ms: int
    count: int
    is_exact: bool = True


_ALWAYS_MS: Final = 1 << 62


def ticks_of(spec: ScheduleSpec) -> Ticks:
    """Return the ticks of a schedule, or raise what is wrong with its rule."""
    ticks = _of_rule(spec.rule)
    if spec.starts_at_ms is None and spec.ends_at_ms is None:
        return ticks
    ends_at_ms = _ALWAYS_MS if spec.ends_at_ms is None else spec.ends_at_ms
    return Bounded(ticks, spec.starts_at_ms or 0, ends_at_ms)


def _of_rule(rule: Rule) -> Ticks:
    return Interval(rule.every_ms, rule.offset_ms)


def newest(ticks: Ticks, *, after_ms: int, until_ms: int, amount: int) -> list[int]:
    """Return the last ticks in ``(after_ms, until_ms]``, at most so many, the oldest first.

    They are found backwards: what lies before them costs nothing.
    """
    found: list[int] = []
    at_ms = ticks.until(until_ms) if amount else None
    while at_ms is not None and at_ms > after_ms:
        found.append(at_ms)
        if len(found) == amount:
            break
        at_ms = ticks.until(at_ms - 1)
    return found[::-1]


def oldest(ticks: Ticks, *, after_ms: int, until_ms: int, amount: int) -> list[int]:
    """Return the first ticks in ``(after_ms, until_ms]``, at most so many."""
    found: list[int] = []
    at_ms = ticks.after(after_ms) if amount else None
    while at_ms is not None and at_ms <= until_ms:
        found.append(at_ms)
        if len(found) == amount:
            break
        at_ms = ticks.after(at_ms)
    return found


def span(ticks: Ticks, *, after_ms: int, until_ms: int) -> Span | None:
    """Return the ticks in ``(after_ms, until_ms]``, counted up to a limit, if there are any."""
    last_ms = ticks.until(until_ms)
    if last_ms is None or last_ms <= after_ms:
        return None
    amount = SKIPPED_COUNTED_MAX
    found = oldest(ticks, after_ms=after_ms, until_ms=until_ms, amount=amount + 1)
    return Span(found[0], last_ms, min(len(found), amount), len(found) <= amount)
