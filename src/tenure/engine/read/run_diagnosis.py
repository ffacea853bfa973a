"""The part of a diagnosis that is about runs: bounded reads, some namespaces with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace

from tenure.core.diagnosis import run_check as rules
from tenure.core.diagnosis.finding import Finding
from tenure.core.diagnosis.run_check import LateClosings, LongJournal, ParkedRuns
from tenure.core.filter import RunFilter
from tenure.core.limits import (
    CLOSING_PROBLEM_MS,
    DIAGNOSED_JOURNALS_MAX,
    FINDINGS_MAX,
    PAGE_SIZE_MAX,
    PARKED_READ_MAX,
    RUNS_COUNTED_MAX,
)
from tenure.core.run.status import RunStatus
from tenure.core.run.wake_up import run_of
from tenure.store.table import listing, run_list, task_list
from tenure.store.table import run_diagnosis as reads
from tenure.store.table.diagnosis import Extent
from tenure.store.table.listing import NEWEST, Slice
from tenure.store.table.run_diagnosis import SeenRuns
from tenure.store.transaction import Store, Tx

# Namespaces that are looked at, and by one read.
_NAMESPACES_MAX: Final = 1_000
_AT_ONCE: Final = 50


async def look_at_runs(store: Store, extent: Extent, *, now_ms: int) -> list[Finding]:
    """Check the runs of namespaces."""
    names = extent.namespaces or await _busy(store)
    before_ms = now_ms - CLOSING_PROBLEM_MS

    async def closings(tx: Tx) -> list[LateClosings]:
        return await reads.list_late_closings(tx, extent, before_ms=before_ms)

    return [
        *rules.check_parked(await _parked(store, names)),
        *rules.check_journals(await _journals(store, names)),
        *rules.check_closings(await store.scan(closings), now_ms=now_ms),
    ]


async def _busy(store: Store) -> list[str]:
    """Return the namespaces that have live tasks."""
    found: list[str] = []
    while len(found) < _NAMESPACES_MAX:
        after = found[-1] if found else ""
        more = partial(listing.find_busy_namespaces, after=after, amount=PAGE_SIZE_MAX)
        page = await store.scan(more)
        found += page
        if len(page) < PAGE_SIZE_MAX:
            break
    return found


async def _parked(store: Store, names: Sequence[str]) -> list[ParkedRuns]:
    """Return the parked runs by type; of those with the most, also why."""
    found: list[SeenRuns] = []
    left = RUNS_COUNTED_MAX
    for some in _parts(names):
        seen = await store.scan(partial(reads.count_parked, namespaces=some, seen_max=left))
        found += [each for each in seen if each.parked_count]
        left -= sum(each.seen_count for each in seen)
        if left <= 0:
            break
    found.sort(key=lambda each: (-each.parked_count, each.namespace, each.type))
    return [await store.scan(partial(_with_reason, seen=each)) for each in found[:FINDINGS_MAX]]


async def _with_reason(tx: Tx, seen: SeenRuns) -> ParkedRuns:
    """Return parked runs of a type with the commonest reason of the first of them."""
    where = RunFilter(type=seen.type, status=RunStatus.PARKED)
    page = await run_list.find_runs(tx, seen.namespace, where, Slice(NEWEST, PARKED_READ_MAX))
    runs = await task_list.load_tasks(tx, seen.namespace, page.ids)
    reasons = [park for park in (run_of(each).park for each in runs) if park is not None]
    parked = ParkedRuns(seen.namespace, seen.type, seen.parked_count)
    if not reasons:
        return parked
    counts = Counter((each.type, each.message) for each in reasons)
    ((kind, like_count),) = counts.most_common(1)
    reason = next(each for each in reasons if (each.type, each.message) == kind)
    return replace(parked, reason=reason, like_count=like_count, read_count=len(reasons))


async def _journals(store: Store, names: Sequence[str]) -> list[LongJournal]:
    """Return the large journals among those of the oldest runs."""
    found: list[LongJournal] = []
    left = DIAGNOSED_JOURNALS_MAX
    for some in _parts(names):
        read = await store.scan(partial(reads.list_journals, namespaces=some, amount=left))
        found += [each for each in read if each.is_large]
        left -= len(read)
        if left <= 0:
            break
    return found


def _parts(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(names)
    while part := tuple(islice(rest, _AT_ONCE)):
        yield part
