"""The list of runs, live and finished, over the indexes that have only runs."""

from __future__ import annotations

from typing import Final

from tenure.core.filter import RunFilter
from tenure.core.limits import INSTANT_MS_MAX
from tenure.core.run.status import ROWS
from tenure.core.task.record import TERMINAL
from tenure.store.table import codec, listing
from tenure.store.table.listing import Slice, Total
from tenure.store.table.task_list import FoundTask, Source, look, merged
from tenure.store.transaction import Tx

_LIVE: Final = Source("find_live_runs", "count_live_runs")
_FINISHED: Final = Source("find_finished_runs", "count_finished_runs")


async def find_runs(tx: Tx, namespace: str, where: RunFilter, part: Slice) -> FoundTask:
    """Return the runs of a page; one that moves into history keeps its place."""
    given = _given(namespace, where)
    looks = [await look(tx, each.find, given, part) for each in _sources(where)]
    return merged(looks, part)


async def count_runs(tx: Tx, namespace: str, where: RunFilter, *, amount: int) -> Total:
    """Count what the list has among the first ``amount`` rows of each source."""
    given = _given(namespace, where)
    totals = [
        listing.total_from(await tx.one(each.count, *given, amount), amount)
        for each in _sources(where)
    ]
    return Total(sum(each.count for each in totals), all(each.is_exact for each in totals))


def _sources(where: RunFilter) -> tuple[Source, ...]:
    """Return where runs with a status may be."""
    if where.status is None:
        return (_LIVE, _FINISHED)
    return (_FINISHED,) if TERMINAL.issuperset(ROWS[where.status].states) else (_LIVE,)


def _given(namespace: str, where: RunFilter) -> tuple[object, ...]:
    rows = None if where.status is None else ROWS[where.status]
    created_to_ms = where.created_to_ms
    return (
        namespace,
        where.queue,
        where.type,
        rows.states[0] if rows else "",
        rows.states[-1] if rows else "",
        (rows.outcome or "") if rows else "",
        codec.labels_to(where.labels),
        where.created_from_ms or 0,
        INSTANT_MS_MAX + 1 if created_to_ms is None else created_to_ms,
        where.external_id_prefix,
    )
