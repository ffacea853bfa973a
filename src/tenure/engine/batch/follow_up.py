"""What follows for others from what a batch has decided: parents hear of the ends of children.

Whatever ends a child, its parent gets one entry for it in the same transaction, and no other write
of the parent is needed. An item of a group is counted by its group, and the run hears of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenure.core.group import decide as group_rules
from tenure.core.group.record import Group
from tenure.core.journal.entry import NewEntry
from tenure.core.run import child
from tenure.core.run.record import Origin
from tenure.core.task.event import EntryAppended
from tenure.core.task.record import Task, TaskState
from tenure.engine.batch.working_set import WorkingSet
from tenure.store.failure import FenceLost, RowsBusy
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx


class _News(msgspec.Struct):
    """What one run hears."""

    entries: list[NewEntry]
    is_urgent: bool = False


async def follow_up(tx: Tx, ws: WorkingSet) -> None:
    """Tell the parents of all children that have ended; a parent that ends by that has one too."""
    while ws.ended_children:
        ended = [ws.tasks[key] for key in ws.ended_children]
        ws.ended_children = []
        await _load_parents(tx, ws, ended)
        _tell_parents(ws, ended)


async def _load_parents(tx: Tx, ws: WorkingSet, ended: Sequence[Task]) -> None:
    """Lock the parents that are not locked yet, and read where their journals end."""
    places = [(task.namespace, child.place_of(task)) for task in ended]
    keys = {(namespace, place.run_id) for namespace, place in places if place.run_id}
    await _lock(tx, ws, keys)
    parents = [ws.tasks[key] for key in keys if key in ws.tasks]
    await ws.journals.learn_ends(tx, [task for task in parents if _is_live_run(task)])
    await ws.groups.load_more(tx, {place.group_id for _, place in places if place.group_id})


async def _lock(tx: Tx, ws: WorkingSet, keys: set[TaskKey]) -> None:
    """Lock parents; on a copy nothing may be decided that does not write the row."""
    tasks = ws.tasks
    copies = (keys & tasks.cached) - tasks.changed.keys()
    if copies:
        raise RowsBusy(frozenset(keys | tasks.parents))
    missing = keys - tasks.keys() - tasks.parents
    if missing:
        if _writes_copies(ws):
            # Those rows are waited for when they are written, and nobody may wait then who has
            # locked others out of order.
            raise RowsBusy(frozenset(keys | tasks.parents))
        await tasks.lock_more(tx, missing)
        # What was appended to their journals before stands there with an earlier time.
        ws.now_ms = await tx.now_ms()


def _writes_copies(ws: WorkingSet) -> bool:
    """Tell whether rows of runs or children will be written that were not locked."""
    tasks, holders = ws.tasks, ws.journals.holders.values()
    written = tasks.changed.keys() | {(each.namespace, each.task_id) for each in holders}
    return any(tasks[key].link is not None for key in written & tasks.cached)


def _is_live_run(task: Task) -> bool:
    is_run = task.link is not None and task.link.journal_id is not None
    return is_run and task.finished_at_ms is None


def _tell_parents(ws: WorkingSet, ended: Iterable[Task]) -> None:
    """Append what each parent hears, once for all of its children."""
    news: dict[TaskKey, _News] = {}
    for task in ended:
        place = child.place_of(task)
        key = (task.namespace, place.run_id)
        parent = ws.tasks.get(key)
        is_waiting = child.is_of(parent, place)
        if place.group_id:
            entry = end_item(ws, task, place, is_waiting=is_waiting)
        elif is_waiting:
            entry = child.ended(task, key=place.key, index=place.index)
        else:
            entry = None
        if entry is not None:
            heard = news.setdefault(key, _News([]))
            heard.entries.append(entry)
            heard.is_urgent |= bool(place.group_id) or task.state is not TaskState.SUCCEEDED
    for key, heard in news.items():
        tell_run(ws, key, heard.entries, is_urgent=heard.is_urgent)


def tell_run(ws: WorkingSet, key: TaskKey, entries: Sequence[NewEntry], *, is_urgent: bool) -> None:
    """Append entries to the journal of a live run that is locked, and wake it if it waits."""
    ws.append_entries(key, entries)
    ws.apply(key, EntryAppended(pos=ws.journals.ends[key].pos, is_urgent=is_urgent))


def end_item(ws: WorkingSet, task: Task, place: Origin, *, is_waiting: bool) -> NewEntry | None:
    """Count the end of an item; return what the run of its group hears, if the group has ended."""
    group = ws.groups.get(place.group_id)
    if group is None:
        return None
    if not group.open_count:
        # All of its items have ended, this one too: the copy on which it was decided is old.
        raise FenceLost(frozenset({task.id}))
    ws.groups.entries.append(
        (group_rules.item_entry(group.group_id, task, ws.now_ms), (task.namespace, task.id))
    )
    counted = group_rules.end_item(group, task)
    ws.groups.put(counted)
    return end_group(ws, counted, task) if is_waiting else None


def end_group(ws: WorkingSet, group: Group, item: Task | None = None) -> NewEntry | None:
    """End a group if it has ended; what it still has open is closed."""
    end = group_rules.end(group, item)
    if end is None:
        return None
    ended, entry = end
    ws.groups.put(ended)
    if ended.open_count:
        key = (ended.namespace, ended.group_id)
        ws.close_children(key, ended.journal_id, is_group=True)
    return entry
