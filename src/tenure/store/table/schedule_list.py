"""The list of schedules by id, and what metrics and a diagnosis count and name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tenure.core.diagnosis.schedule_check import BrokenSchedule, FailingSchedule, LateSchedules
from tenure.core.limits import COUNTED_MAX, SCHEDULES_MAX
from tenure.store.table.codec import AnyRow
from tenure.store.table.diagnosis import Extent
from tenure.store.table.fire import ScheduleKey
from tenure.store.table.listing import Slice, Total, total_from
from tenure.store.table.schedule import read_schedules
from tenure.store.transaction import Tx

Given = tuple[str, str, str]
"""(namespace, type, whether they are paused: yes, no or empty)"""


async def find_schedules(tx: Tx, given: Given, part: Slice) -> tuple[list[str], str | None]:
    """Return the ids of a page, and where the read stopped while rows were left."""
    found = await tx.one("find_schedules", *given, part.position, part.seen_max, part.amount)
    rows = cast("Sequence[AnyRow]", found)
    is_cut = bool(rows) and rows[-1][2] == part.seen_max
    return [row[0] for row in rows if row[1]], rows[-1][0] if is_cut else None


async def count_schedules(tx: Tx, given: Given) -> Total:
    """Count what the list has, up to a limit."""
    amount = COUNTED_MAX + 1
    return total_from(await tx.one("count_schedules", *given, amount), amount)


async def count_states(tx: Tx, now_ms: int) -> tuple[int, int]:
    """Count the schedules that are due, and the broken ones, up to a limit."""
    (row,) = await tx.one("count_schedule_states", now_ms, SCHEDULES_MAX)
    return cast("tuple[int, int]", tuple(row))


async def list_late(tx: Tx, extent: Extent, *, before_ms: int) -> list[LateSchedules]:
    """Count by namespace what was due before an instant."""
    rows = await tx.one("list_late_schedules", extent.scope, before_ms, extent.amount)
    return [LateSchedules(*cast("tuple[str, int, int, str]", tuple(row))) for row in rows]


async def list_broken(tx: Tx, extent: Extent, *, amount: int) -> list[BrokenSchedule]:
    """Return broken schedules with their errors."""
    keys = await tx.one("list_broken_schedules", extent.scope, amount)
    found = await read_schedules(tx, [cast("ScheduleKey", tuple(row)) for row in keys])
    return [BrokenSchedule(each.namespace, each.id, each.progress.error) for each in found]


async def list_failing(tx: Tx, extent: Extent, *, amount: int) -> list[FailingSchedule]:
    """Return schedules whose tasks have failed in a row, those with the most first."""
    rows = await tx.one("list_failing_schedules", extent.scope, amount)
    return [FailingSchedule(*cast("tuple[str, str, int]", tuple(row))) for row in rows]
