"""The reads of a diagnosis that are about runs: bounded, over the index that has only runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from tenure.core.diagnosis.run_check import LateClosings, LongJournal
from tenure.store.table import codec
from tenure.store.table import journal as journal_table
from tenure.store.table.diagnosis import Extent
from tenure.store.transaction import Tx


class SeenRuns(msgspec.Struct, frozen=True, gc=False):
    """How many live runs of a type were seen, and how many of them are parked."""

    namespace: str
    type: str
    parked_count: int
    seen_count: int


async def count_parked(tx: Tx, namespaces: Iterable[str], *, seen_max: int) -> list[SeenRuns]:
    """Count the parked runs of namespaces by type, among so many of each."""
    given = [(each,) for each in namespaces]
    rows = cast("Sequence[codec.AnyRow]", await tx.each("count_parked_runs", given, seen_max))
    return [SeenRuns(*row) for row in rows]


async def list_journals(tx: Tx, namespaces: Iterable[str], *, amount: int) -> list[LongJournal]:
    """Return the journals of the oldest runs of namespaces, so many of each."""
    given = [(each,) for each in namespaces]
    rows = cast("Sequence[codec.AnyRow]", await tx.each("list_oldest_runs", given, amount))
    ends = await journal_table.read_ends(tx, [row[3] for row in rows])
    return [
        LongJournal(namespace, run_id, type_, ends[journal_id].pos, ends[journal_id].total_bytes)
        for namespace, run_id, type_, journal_id in rows
        if journal_id in ends
    ]


async def list_late_closings(tx: Tx, extent: Extent, *, before_ms: int) -> list[LateClosings]:
    """Count what ended before an instant and whose children are not closed, by namespace."""
    rows = await tx.one("list_late_closings", extent.scope, before_ms, extent.amount)
    return [LateClosings(*cast("tuple[str, int, int]", tuple(row))) for row in rows]
