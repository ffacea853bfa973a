"""Deliberate bugs in what fires, each of which the checker must find."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace

from tenure.core.schedule import look, ticks
from tenure.core.schedule.record import Schedule, ScheduleState
from tenure.engine.schedule import handler
from tenure.store.table import schedule as schedule_table

Function = Any


def _mark_not_moved(original: Function) -> Function:
    """Fire, and forget up to where."""

    def changed(schedule: Any, *args: Any) -> Any:
        decision = original(schedule, *args)
        old = schedule.progress.fired_until_ms
        progress = replace(decision.schedule.progress, fired_until_ms=old)
        return replace(decision, schedule=replace(decision.schedule, progress=progress))

    return changed


def _no_unique_key(original: Function) -> Function:
    """Give each fire of a tick a key of its own."""
    numbers = itertools.count()
    return lambda *args: f"{original(*args)}-{next(numbers)}"


def _nothing_found(_original: Function) -> Function:
    """Do not look for fires that are there."""

    async def changed(*_args: Any, **_options: Any) -> dict[Any, Any]:
        return {}

    return changed


def _from_included(original: Function) -> Function:
    """Take the bounds as ``[from, to)``."""

    def changed(ticks: Any, after_ms: int, until_ms: int, most: int) -> Any:
        return original(ticks, after_ms - 1, until_ms - 1, most)

    return changed


def _oldest_kept(_original: Function) -> Function:
    """Catch up the oldest ticks, not the newest."""
    return ticks.between


def _pause_not_locked(original: Function) -> Function:
    """Fire on a copy that was read before somebody paused the schedule."""
    copies: dict[Any, Schedule] = {}

    async def changed(tx: Any, *, now_ms: int, amount: int) -> list[Schedule]:
        due: list[Schedule] = await original(tx, now_ms=now_ms, amount=amount)
        due += [
            replace(copies[each.key], version=each.version)
            for each in await schedule_table.read_schedules(tx, copies)
            if each.state is ScheduleState.PAUSED
        ]
        copies.update({each.key: each for each in due})
        return due

    return changed


Patch = tuple[Any, str, Callable[[Function], Function]]
MUTANTS: Final[dict[str, list[Patch]]] = {
    "mark_not_moved": [(look, "fire", _mark_not_moved)],
    "no_unique_key": [
        (look, "fire_key", _no_unique_key),
        (handler, "fire_key", _no_unique_key),
        (schedule_table, "find_ticks", _nothing_found),
    ],
    "from_included": [(look, "newest", _from_included)],
    "oldest_kept": [(look, "newest", _oldest_kept)],
    "pause_not_locked": [(schedule_table, "load_due", _pause_not_locked)],
}


@contextlib.contextmanager
def applied(name: str) -> Iterator[None]:
    """Put one bug into the code."""
    with contextlib.ExitStack() as stack:
        for owner, attribute, change in MUTANTS[name]:
            changed = change(getattr(owner, attribute))
            stack.enter_context(mock.patch.object(owner, attribute, changed))
        yield
