"""What a worker gets of the journal of a run that it is handed, and which children are open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from tenure.core.group.record import Group
from tenure.core.journal.entry import JournalPage, OpenChild, OpenGroup
from tenure.core.limits import OPEN_PAGE_MAX, WORK_BATCH_BYTES_MAX
from tenure.core.run.record import NOT_BEGUN
from tenure.core.task.record import Task
from tenure.engine.batch.working_set import WorkingSet
from tenure.store.table import child as child_table
from tenure.store.table import group as group_table
from tenure.store.table.child import LOWEST_ID, LiveChild
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx

Assigned = tuple[Task, int]
"""A task that is handed out, and the offer that gets it."""


async def with_pages(tx: Tx, ws: WorkingSet, assigned: Sequence[Assigned]) -> list[Assigned]:
    """Return hand-outs in which each run has a page of its journal."""
    runs = [task for task, _ in assigned if has_journal(task)]
    wanted = [(task, _seen_by_holder(task)) for task in runs]
    pages = await ws.journals.pages(tx, wanted, bytes_max=WORK_BATCH_BYTES_MAX)
    page_of = {task.id: page for task, page in zip(runs, pages, strict=True)}
    # Only a run that somebody has had before can have made anything.
    cold = [task for task in runs if task.attempt > 1 and not page_of[task.id].after]
    if cold:
        page_of.update(await _with_open(tx, ws, cold, page_of))
    found = []
    for task, offer_id in assigned:
        given = task
        if has_journal(task):
            assert task.link is not None
            given = replace(task, link=replace(task.link, page=page_of[task.id]))
        found.append((given, offer_id))
    return found


async def _with_open(
    tx: Tx, ws: WorkingSet, runs: Sequence[Task], page_of: Mapping[str, JournalPage]
) -> dict[str, JournalPage]:
    """Return the pages of runs that begin from the start, with what is open of them."""
    starts = [(task.namespace, task.id, LOWEST_ID) for task in runs]
    stored = await child_table.read_children(tx, starts, amount=OPEN_PAGE_MAX)
    journals = [_journal_of(task) for task in runs]
    groups: dict[str, list[Group]] = {}
    for found in await group_table.read_open_groups(tx, journals):
        group = ws.groups.get(found.group_id, found)
        groups.setdefault(group.journal_id, []).append(group)
    for group in ws.groups.new.values():
        groups.setdefault(group.journal_id, []).append(group)
    pages = {}
    for task in runs:
        key, journal_id = (task.namespace, task.id), _journal_of(task)
        children = stored.get(key, [])
        pages[task.id] = replace(
            page_of[task.id],
            open=open_children(_as_decided(ws, key, children), journal_id),
            open_next=open_next(children),
            groups=open_groups(groups.get(journal_id, ())),
        )
    return pages


def _as_decided(ws: WorkingSet, parent: TaskKey, stored: Sequence[LiveChild]) -> list[LiveChild]:
    """Return children as they will be when the batch is committed; new ones may come twice."""
    namespace, parent_id = parent
    children = [each for each in stored if not _has_ended(ws, (namespace, each.id))]
    for (_, id_), task in ws.tasks.new.items():
        link = task.link
        if link is not None and link.parent_id == parent_id and task.finished_at_ms is None:
            children.append(LiveChild(id_, task.type, link.journal_id is not None, link.place))
    return sorted(children, key=lambda each: each.id)


def _has_ended(ws: WorkingSet, key: TaskKey) -> bool:
    task = ws.tasks.get(key)
    return task is not None and task.finished_at_ms is not None


def open_children(children: Iterable[LiveChild], journal_id: str) -> tuple[OpenChild, ...]:
    """Return the open children of a generation, as whoever holds their run needs them."""
    return tuple(
        OpenChild(each.id, each.place.key, each.place.index, each.type, each.is_run)
        for each in children
        if each.place.journal_id == journal_id
    )


def open_next(stored: Sequence[LiveChild]) -> str:
    """Return behind which id there may be more than one page has, if there may."""
    return stored[-1].id if len(stored) >= OPEN_PAGE_MAX else ""


def open_groups(groups: Iterable[Group]) -> tuple[OpenGroup, ...]:
    """Return the groups that have not ended, as whoever holds their run needs them."""
    return tuple(
        OpenGroup(
            group_id=each.group_id,
            key=each.key,
            index=each.call_index,
            type=each.type,
            total=each.total,
            spawned=each.spawned,
            open_count=each.open_count,
            failed=each.failed_count,
        )
        for each in groups
        if not each.has_ended
    )


def _journal_of(task: Task) -> str:
    assert task.link is not None
    assert task.link.journal_id is not None
    return task.link.journal_id


def has_journal(task: Task) -> bool:
    """Tell whether a task is a run that has one."""
    return task.link is not None and task.link.journal_id is not None


def _seen_by_holder(task: Task) -> int:
    """Return up to where its worker has the journal: the one that had it last may still have it."""
    run = task.progress.run or NOT_BEGUN
    return run.seen if run.home_worker_id == task.worker_id else 0
