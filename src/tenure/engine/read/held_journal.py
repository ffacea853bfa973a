"""Pages of journals for the worker that holds their runs, many in one read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.core import check
from tenure.core.journal.entry import JournalPage
from tenure.core.limits import ATTEMPT_MAX, STEP_KEY_BYTES_MAX
from tenure.core.task import decide as task_rules
from tenure.core.task.event import StepsRecorded
from tenure.core.task.record import Task
from tenure.engine.read.journal_page import PageOf, read_pages
from tenure.engine.read.query import read
from tenure.errors import Rejection, TenureError
from tenure.store.table import task as task_table
from tenure.store.transaction import Store, Tx


class PageRef(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Which page is wanted of a run that is held in this attempt: what follows a position.

    With a ``group_key`` it is one of the results of that group; with ``open_after`` it has the open
    children behind that id instead of entries.
    """

    task_id: str
    attempt: int
    after: int
    group_key: str = ""
    open_after: str = ""


PageAnswer = JournalPage | TenureError
"""One request's answer; a refused one disturbs no other."""


async def read_held_pages(
    store: Store, *, namespace: str, worker_id: str, wanted: Sequence[PageRef]
) -> list[PageAnswer]:
    """Answer each request; those that do not fit into one frame get a page without entries."""
    refused: dict[int, TenureError] = {}
    for number, each in enumerate(wanted):
        try:
            check.task_id(each.task_id, "taskId")
            check.attempt(each.attempt)
            check.integer(each.after, "after", 0, ATTEMPT_MAX)
            check.text(each.group_key, "groupKey", bytes_max=STEP_KEY_BYTES_MAX)
            if each.open_after:
                check.task_id(each.open_after, "openAfter")
        except TenureError as refusal:
            refused[number] = refusal
    sound = [each for number, each in enumerate(wanted) if number not in refused]

    async def body(tx: Tx) -> list[PageAnswer]:
        return await _pages(tx, namespace, worker_id, sound)

    found = iter(await read(store, body) if sound else ())
    return [refused.get(number) or next(found) for number in range(len(wanted))]


async def _pages(
    tx: Tx, namespace: str, worker_id: str, wanted: Sequence[PageRef]
) -> list[PageAnswer]:
    tasks = await _tasks(tx, {(namespace, each.task_id) for each in wanted})
    refusals = [_refusal(tasks.get(each.task_id), each, worker_id) for each in wanted]
    sound = [
        PageOf(
            run=tasks[each.task_id],
            after=each.after,
            group_key=each.group_key,
            open_after=each.open_after,
        )
        for each, refusal in zip(wanted, refusals, strict=True)
        if refusal is None
    ]
    pages = iter(await read_pages(tx, sound))
    answers = [refusal or next(pages) for refusal in refusals]
    return [each.to_error() if isinstance(each, Rejection) else each for each in answers]


async def _tasks(tx: Tx, keys: set[tuple[str, str]]) -> dict[str, Task]:
    """Read tasks, live and finished, by id."""
    tasks = {task.id: task for task in await task_table.read_tasks(tx, keys)}
    missing = [key for key in keys if key[1] not in tasks]
    if missing:
        tasks |= {task.id: task for task in await task_table.load_history(tx, missing)}
    return tasks


def _refusal(task: Task | None, wanted: PageRef, worker_id: str) -> Rejection | None:
    """Refuse whoever could not report a step either."""
    if task is None or task.link is None or task.link.journal_id is None:
        return Rejection("not_found", f"Run {wanted.task_id} was not found.")
    event = StepsRecorded(attempt=wanted.attempt, worker_id=worker_id)
    decision = task_rules.decide(task, event, 0)
    return decision if isinstance(decision, Rejection) else None
