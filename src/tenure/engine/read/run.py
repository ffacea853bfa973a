"""The reads of runs: one with its journal's end, a page of its journal, and lists."""

from __future__ import annotations

import msgspec

from tenure.core import check, limits
from tenure.core.filter import ALL_RUNS, RunFilter
from tenure.core.journal.entry import JournalPage, OpenGroup
from tenure.core.journal.numbering import JournalEnd
from tenure.core.task.record import Task, TaskKind
from tenure.engine.read.journal_page import PageOf, read_pages
from tenure.engine.read.query import Page, PageRequest, find_task, list_tasks, read
from tenure.engine.run.hand_out_page import open_groups
from tenure.engine.task.handler import not_found
from tenure.errors import NotFound, Rejection
from tenure.store.table import child as child_table
from tenure.store.table import group as group_table
from tenure.store.table import journal as journal_table
from tenure.store.transaction import Store, Tx


class RunView(msgspec.Struct, frozen=True, gc=False):
    """A run as it stands, how much its journal has, and what is open of it."""

    task: Task
    entry_count: int
    journal_bytes: int
    open_child_count: int
    groups: tuple[OpenGroup, ...]


async def get_run(store: Store, *, namespace: str, run_id: str) -> RunView:
    """Return a run, live or finished."""
    key = (check.namespace(namespace), check.task_id(run_id, "runId"))

    async def body(tx: Tx) -> RunView:
        task, journal_id = await _find_run(tx, key)
        ends = await journal_table.read_ends(tx, [journal_id])
        end = ends.get(journal_id, JournalEnd(journal_id))
        counts = await child_table.count_children(tx, [key])
        groups = open_groups(await group_table.read_open_groups(tx, [journal_id]))
        return RunView(task, end.pos, end.total_bytes, counts.get(key, 0), groups)

    return await read(store, body)


async def list_runs(
    store: Store, *, namespace: str, page: PageRequest, where: RunFilter = ALL_RUNS
) -> Page[Task]:
    """Return runs that pass the filter, newest first, live and finished; activities are passed."""
    return await list_tasks(store, namespace=namespace, page=page, where=where)


async def read_journal(
    store: Store,
    *,
    namespace: str,
    run_id: str,
    after: int = 0,
    group_key: str = "",
    open_after: str = "",
) -> JournalPage:
    """Return a page of the present journal of a run, behind a position, or of a group of it.

    With ``open_after`` it has the open children behind that id instead of entries.
    """
    key = (check.namespace(namespace), check.task_id(run_id, "runId"))
    check.integer(after, "after", 0, limits.ATTEMPT_MAX)
    check.text(group_key, "groupKey", bytes_max=limits.STEP_KEY_BYTES_MAX)
    if open_after:
        check.task_id(open_after, "openAfter")

    async def body(tx: Tx) -> JournalPage:
        run, _ = await _find_run(tx, key)
        wanted = PageOf(run=run, after=after, group_key=group_key, open_after=open_after)
        (page,) = await read_pages(tx, [wanted])
        if isinstance(page, Rejection):
            raise page.to_error()
        return page

    return await read(store, body)


async def _find_run(tx: Tx, key: tuple[str, str]) -> tuple[Task, str]:
    """Return a run and its journal; an activity is no run."""
    try:
        task = await find_task(tx, key)
    except NotFound:
        raise not_found("Run", key[1]) from None
    if task.kind is not TaskKind.WORKFLOW or task.link is None or task.link.journal_id is None:
        raise not_found("Run", key[1])
    return task, task.link.journal_id
