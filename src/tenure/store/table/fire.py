"""Fires of schedules: records in, records out. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

import msgspec

from tenure.core.schedule.origin import fire_key
from tenure.core.schedule.record import Fire, FireKind, FireOutcome, SkipReason
from tenure.store.table.codec import AnyRow
from tenure.store.transaction import Tx

ScheduleKey = tuple[str, str]
"""(namespace, schedule)"""
_KINDS: Final = {each.value: each for each in FireKind}


class TickSearch(msgspec.Struct, frozen=True, gc=False):
    """Of which schedule, and from when to when, ticks that have fired are looked for."""

    schedule: ScheduleKey
    after_ms: int
    until_ms: int


class OpenFire(msgspec.Struct, frozen=True, gc=False):
    """A fire whose end was not noted, and whether its task is live."""

    namespace: str
    schedule_id: str
    task_id: str
    is_live: bool


def _fire_from(row: AnyRow) -> Fire:
    return Fire(
        namespace=row[0],
        schedule_id=row[1],
        id=row[2],
        key=row[3],
        kind=_KINDS[row[4]],
        fire_at_ms=row[5],
        until_ms=row[6],
        recorded_at_ms=row[7],
        task_id=row[8],
        outcome=None if row[9] is None else FireOutcome(row[9]),
        settled_at_ms=row[10],
        reason=None if row[11] is None else SkipReason(row[11]),
        count=row[12],
        is_count_exact=bool(row[13]),
    )


def _fires_from(rows: Sequence[object]) -> list[Fire]:
    return [_fire_from(row) for row in cast("Sequence[AnyRow]", rows)]


async def find_fires(tx: Tx, keys: Iterable[tuple[str, str]]) -> list[Fire]:
    """Read fires by (namespace, key)."""
    return _fires_from(await tx.each("find_fires", sorted(keys)))


async def find_open_fires(tx: Tx, tasks: Iterable[tuple[str, str]]) -> list[Fire]:
    """Read the fires of tasks whose ends were not noted."""
    return _fires_from(await tx.each("find_open_fires", sorted(tasks)))


async def find_ticks(
    tx: Tx, searches: Sequence[TickSearch], *, amount: int
) -> dict[ScheduleKey, list[int]]:
    """Return the newest ticks that have fired, so many of each schedule."""
    rows = [
        (*each.schedule, fire_key(name, each.after_ms), fire_key(name, each.until_ms))
        for each in searches
        for name in (each.schedule[1],)
    ]
    found: dict[ScheduleKey, list[int]] = {}
    for row in cast("Sequence[AnyRow]", await tx.each("find_ticks", rows, amount)):
        found.setdefault((row[0], row[1]), []).append(row[2])
    return found


async def list_fires(tx: Tx, schedule: ScheduleKey, *, before_id: str, amount: int) -> list[Fire]:
    """Read fires of a schedule before an id, the newest first."""
    return _fires_from(await tx.one("list_fires", *schedule, before_id, amount))


async def sweep_fires(tx: Tx, *, after: tuple[str, str], amount: int) -> list[OpenFire]:
    """Read fires whose ends were not noted, behind (namespace, task)."""
    rows = cast("Sequence[AnyRow]", await tx.one("sweep_fires", *after, amount))
    return [OpenFire(row[0], row[1], row[2], bool(row[3])) for row in rows]


async def insert_fires(tx: Tx, fires: Sequence[Fire]) -> None:
    """Write new fires; of two with one key the second one is refused."""
    await tx.each("insert_fires", [_inserted(each) for each in fires])


def _inserted(fire: Fire) -> tuple[object, ...]:
    return (
        fire.namespace,
        fire.schedule_id,
        fire.id,
        fire.key,
        fire.kind,
        fire.fire_at_ms,
        fire.until_ms,
        fire.recorded_at_ms,
        fire.task_id,
        fire.outcome,
        fire.settled_at_ms,
        fire.reason,
        fire.count,
        fire.is_count_exact,
    )


async def settle_fires(tx: Tx, fires: Sequence[Fire]) -> None:
    """Write how the tasks of fires have ended, unless somebody has."""
    rows = [(x.namespace, x.schedule_id, x.id, x.outcome, x.settled_at_ms) for x in fires]
    await tx.each("settle_fires", sorted(rows, key=lambda row: row[:3]))
