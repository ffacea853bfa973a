"""The list of tasks, live and finished: the tasks of a page, and their number.

A read is limited to a number of rows, however few of them match the filter. The next page continues
after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tenure.core.filter import TaskFilter
from tenure.core.task.record import TERMINAL, Task, TaskState
from tenure.store.table import codec, listing
from tenure.store.table.damaged_row import tasks_from
from tenure.store.table.listing import Slice, Total
from tenure.store.transaction import Tx


class FoundTask(msgspec.Struct, frozen=True):
    """Ids of tasks, newest first; ``end_id`` is where the read stopped while rows were left."""

    ids: tuple[str, ...]
    end_id: str | None = None


class Source(msgspec.Struct, frozen=True):
    """Rows in the order of the list, and the statements that read them."""

    find: str
    count: str


_LIVE: Final = Source("find_live_tasks", "count_live_tasks")
_FINISHED: Final = Source("find_finished_tasks", "count_finished_tasks")
_STATE: Final = Source("find_state_tasks", "count_state_tasks")
_UNSUCCESSFUL: Final = Source("find_unsuccessful_tasks", "count_unsuccessful_tasks")
# States in which plain tasks that are done at once never are: these have an index.
_INDEXED: Final = frozenset(
    {TaskState.RUNNING, TaskState.CANCELLING, TaskState.WAITING, TaskState.PAUSED}
)


async def find_tasks(tx: Tx, namespace: str, where: TaskFilter, part: Slice) -> FoundTask:
    """Return the tasks of a page; one that moves into history keeps its place."""
    return merged([await _look(tx, namespace, where, part, each) for each in _sources(where)], part)


def merged(looks: Sequence[FoundTask], part: Slice) -> FoundTask:
    """Return a page from what its sources have."""
    ends = [each.end_id for each in looks if each.end_id is not None]
    ids = sorted((each for look in looks for each in look.ids), reverse=True)
    if not ends:
        return FoundTask(tuple(ids[: part.amount]))
    # After the end of one read there may be newer tasks than some that the other has found.
    end_id = max(ends)
    return FoundTask(tuple(each for each in ids if each >= end_id)[: part.amount], end_id)


async def load_tasks(tx: Tx, namespace: str, ids: Sequence[str]) -> list[Task]:
    """Return tasks in the given order, without their payloads."""
    keys = [(namespace, each) for each in ids]
    live = await tx.each("list_live_tasks", keys)
    found = {each.id: each for each in tasks_from(live, codec.task_from)}
    missing = [key for key in keys if key[1] not in found]
    finished = await tx.each("list_finished_tasks", missing)
    found |= {each.id: each for each in tasks_from(finished, codec.finished_from)}
    return [found[each] for each in ids if each in found]


async def count_tasks(tx: Tx, namespace: str, where: TaskFilter, *, amount: int) -> Total:
    """Count what the list has among the first ``amount`` rows of each source."""
    totals = [await _count(tx, namespace, where, each, amount) for each in _sources(where)]
    return Total(sum(each.count for each in totals), all(each.is_exact for each in totals))


def _sources(where: TaskFilter) -> tuple[Source, ...]:
    """Return where tasks in a state may be."""
    state = where.state
    if state is None:
        return (_LIVE, _FINISHED)
    if state in _INDEXED:
        return (_STATE,)
    if state not in TERMINAL:
        return (_LIVE,)
    return (_FINISHED,) if state is TaskState.SUCCEEDED else (_UNSUCCESSFUL,)


async def _look(
    tx: Tx, namespace: str, where: TaskFilter, part: Slice, source: Source
) -> FoundTask:
    if source in {_LIVE, _STATE}:
        few = await _find_few(tx, namespace, where, part)
        if few is not None:
            return FoundTask(few)
    return await look(tx, source.find, _given(namespace, where), part)


async def look(tx: Tx, statement: str, given: Sequence[object], part: Slice) -> FoundTask:
    """Read a part of one source, and tell where the read stopped."""
    found = await tx.one(statement, *given, part.position, part.seen_max, part.amount)
    rows: list[codec.AnyRow] = list(found)
    is_cut = bool(rows) and rows[-1][2] == part.seen_max
    return FoundTask(tuple(row[0] for row in rows if row[1]), rows[-1][0] if is_cut else None)


async def _find_few(
    tx: Tx, namespace: str, where: TaskFilter, part: Slice
) -> tuple[str, ...] | None:
    """Find rows by an index that has another order than the list, if few enough to sort."""
    if where.queue:
        name = "find_queue_tasks"
    elif where.state is TaskState.DISPATCHED:
        # Workers hold them, always: if few tasks are held, they are found among those.
        name = "find_held_tasks"
    else:
        return None
    given = (*_given(namespace, where), part.position, part.seen_max, part.amount)
    (_, seen_count), *rows = list[codec.AnyRow](await tx.one(name, *given))
    return None if seen_count >= part.seen_max else tuple(row[0] for row in rows)


async def _count(tx: Tx, namespace: str, where: TaskFilter, source: Source, amount: int) -> Total:
    if source in {_LIVE, _STATE} and where.queue:
        return await _count_queue(tx, namespace, where, amount)
    if source is _LIVE:
        few = await _find_few(tx, namespace, where, Slice(listing.NEWEST, amount, amount))
        if few is not None:
            return Total(len(few), is_exact=True)
    rows = await tx.one(source.count, *_given(namespace, where), amount)
    return listing.total_from(rows, amount)


async def _count_queue(tx: Tx, namespace: str, where: TaskFilter, amount: int) -> Total:
    """Count the live tasks of a queue, among the first ``amount`` of them."""
    counts = await listing.count_queues(tx, namespace, [where.queue], amount=amount)
    seen = listed = 0
    for type_, states in counts.get(where.queue, {}).items():
        for state, count in states.items():
            seen += count
            if where.type in {"", type_} and where.state in {None, state}:
                listed += count
    return Total(listed, seen < amount)


def _given(namespace: str, where: TaskFilter) -> tuple[object, ...]:
    return namespace, where.queue, where.type, where.state or ""
