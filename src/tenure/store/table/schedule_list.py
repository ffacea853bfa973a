"""The list of schedules by id, and how many there are: for reads and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tenure.core.limits import COUNTED_MAX
from tenure.store.table.codec import AnyRow
from tenure.store.table.listing import Slice, Total, total_from
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
