"""Searches of tasks by what no index has: some rows at a time are loaded and looked into."""

from __future__ import annotations

from tenure.core.filter import TaskFilter, TaskSearch
from tenure.core.limits import SEARCHED_AT_ONCE, SEARCHES_MAX
from tenure.store.table.listing import Slice
from tenure.store.table.task_list import FoundTask, find_tasks, load_tasks, merged
from tenure.store.transaction import Tx


async def search_tasks(tx: Tx, namespace: str, where: TaskSearch, part: Slice) -> FoundTask:
    """Return matches, newest first; a search that ends early says how far back it has looked."""
    kept: list[str] = []
    position = min(part.position, where.end_id)
    first_id = where.first_id
    left = SEARCHES_MAX
    while left > 0:
        found = await _some(tx, namespace, where, Slice(position, SEARCHED_AT_ONCE, part.seen_max))
        tasks = await load_tasks(tx, namespace, found.ids)
        kept += [task.id for task in tasks if where.takes(task)]
        if len(kept) >= part.amount:
            return FoundTask(tuple(kept[: part.amount]))
        is_full = len(found.ids) == SEARCHED_AT_ONCE
        end_id = found.ids[-1] if is_full else found.end_id
        if end_id is None or end_id < first_id:
            return FoundTask(tuple(kept))
        position = end_id
        left -= 1 if is_full else SEARCHES_MAX // 2
    return FoundTask(tuple(kept), position)


async def _some(tx: Tx, namespace: str, where: TaskSearch, part: Slice) -> FoundTask:
    """Return the next candidates: what the indexes of the list can tell apart."""
    looks = [
        await find_tasks(
            tx, namespace, TaskFilter(queue=where.queue, type=where.exact_type, state=state), part
        )
        for state in where.states or (None,)
    ]
    return merged(looks, part)
