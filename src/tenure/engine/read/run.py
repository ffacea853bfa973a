"""The reads of runs: one with its journal's end, a page of its journal, and lists."""

from __future__ import annotations

import msgspec

from tenure.core import check, limits
from tenure.core.filter import ALL_RUNS, RunFilter
from tenure.core.journal.entry import JournalPage, OpenGroup
from tenure.core.journal.numbering import JournalEnd
from tenure.core.run import external_id
from tenure.core.run.retry import JournalOutline
from tenure.core.task.record import TERMINAL, Task, TaskKind
from tenure.core.task.refusal import wrong_state
from tenure.engine.read.journal_page import PageOf, read_pages
from tenure.engine.read.query import Page, PageRequest, find_task, list_tasks, read
from tenure.engine.run.command import RetryRun
from tenure.engine.run.hand_out_page import open_groups
from tenure.engine.task.handler import not_found
from tenure.errors import DataDamaged, InvalidArgument, NotFound, Rejection
from tenure.store.table import child as child_table
from tenure.store.table import external_id as external_table
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


async def run_named(store: Store, *, namespace: str, run_id: str) -> str:
    """Return the id of the run that a caller names; ``external:<id>`` is looked up.

    A live run comes first, then the one that ended last. Every other text is left to the check of
    what is done with it.
    """
    if not run_id.startswith(external_id.PREFIX):
        return run_id
    wanted = external_id.check_id(run_id.removeprefix(external_id.PREFIX), "runId")
    key = (check.namespace(namespace), wanted)

    async def body(tx: Tx) -> str:
        found = await external_table.find_external(tx, [key])
        if not found:
            raise not_found("Run", run_id)
        return found[0].run_id

    return await read(store, body)


async def get_run(store: Store, *, namespace: str, run_id: str) -> RunView:
    """Return a run, live or finished."""
    run_id = await run_named(store, namespace=namespace, run_id=run_id)
    key = (check.namespace(namespace), check.task_id(run_id, "runId"))

    async def body(tx: Tx) -> RunView:
        task, journal_id = await find_run(tx, key)
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
    run_id = await run_named(store, namespace=namespace, run_id=run_id)
    key = (check.namespace(namespace), check.task_id(run_id, "runId"))
    check.integer(after, "after", 0, limits.ATTEMPT_MAX)
    check.text(group_key, "groupKey", bytes_max=limits.STEP_KEY_BYTES_MAX)
    if open_after:
        check.task_id(open_after, "openAfter")

    async def body(tx: Tx) -> JournalPage:
        run, _ = await find_run(tx, key)
        wanted = PageOf(run=run, after=after, group_key=group_key, open_after=open_after)
        (page,) = await read_pages(tx, [wanted])
        if isinstance(page, Rejection):
            raise page.to_error()
        return page

    return await read(store, body)


async def plan_retry(
    store: Store,
    *,
    namespace: str,
    run_id: str,
    new_run_id: str,
    from_step: str = "",
    from_position: int = 0,
) -> RetryRun:
    """Return the command that makes a new run from a finished one, with what it keeps.

    Neither a finished run nor its journal changes any more, so both can be read before.
    """
    run_id = await run_named(store, namespace=namespace, run_id=run_id)
    key = (check.namespace(namespace), check.task_id(run_id, "runId"))
    check.text(from_step, "fromStep", bytes_max=limits.STEP_KEY_BYTES_MAX)
    check.integer(from_position, "fromPosition", 0, limits.ATTEMPT_MAX)
    if from_step and from_position:
        message = "Give fromStep or fromPosition, not both"
        raise InvalidArgument(message, field="fromPosition")

    async def body(tx: Tx) -> RetryRun:
        task, journal_id = await find_run(tx, key)
        if task.state not in TERMINAL:
            raise wrong_state(task).to_error()
        assert task.link is not None
        kept = kept_bytes = 0
        groups: tuple[str, ...] = ()
        if from_step or from_position:
            outline = await _outline(tx, key[1], journal_id)
            kept = outline.kept(task, from_step=from_step, from_position=from_position)
            groups = outline.groups(kept)
        if kept:
            page = await journal_table.read_page(tx, journal_id, after=kept - 1)
            kept_bytes = page.entries[0].total_bytes
        return RetryRun(
            namespace=key[0],
            run_id=key[1],
            new_run_id=new_run_id,
            kept_count=kept,
            kept_bytes=kept_bytes,
            group_keys=groups,
            external_id=task.link.external_id or "",
        )

    return await read(store, body)


async def _outline(tx: Tx, run_id: str, journal_id: str) -> JournalOutline:
    """Read a whole journal; one of which retention has removed a part is as good as none."""
    try:
        return await _read_outline(tx, journal_id)
    except msgspec.DecodeError:
        message = f"An entry of the journal of run {run_id} is damaged. Retry it without a step."
        raise DataDamaged(message, reason="journal") from None


async def _read_outline(tx: Tx, journal_id: str) -> JournalOutline:
    outline = JournalOutline()
    while True:
        page = await journal_table.read_page(tx, journal_id, after=outline.end)
        for entry in page.entries:
            if entry.pos != outline.end + 1:
                return JournalOutline()
            outline.show(entry)
        if outline.end >= page.end:
            return outline
        if not page.entries:
            return JournalOutline()


async def check_is_run(store: Store, *, namespace: str, run_id: str) -> None:
    """Raise ``not_found`` for what is no run of a namespace."""
    key = (check.namespace(namespace), check.task_id(run_id, "runId"))
    await read(store, lambda tx: find_run(tx, key))


async def find_run(tx: Tx, key: tuple[str, str]) -> tuple[Task, str]:
    """Return a run and its journal; an activity is no run."""
    try:
        task = await find_task(tx, key)
    except NotFound:
        raise not_found("Run", key[1]) from None
    if task.kind is not TaskKind.WORKFLOW or task.link is None or task.link.journal_id is None:
        raise not_found("Run", key[1])
    return task, task.link.journal_id
