"""Pages of journals for the worker that holds their runs, many in one read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.core import check
from tenure.core.journal.entry import JournalPage
from tenure.core.limits import ATTEMPT_MAX, FRAME_BYTES
from tenure.core.task import decide as task_rules
from tenure.core.task.event import StepsRecorded
from tenure.core.task.record import Task
from tenure.engine.read.query import read
from tenure.errors import Rejection, TenureError
from tenure.store.table import journal as journal_table
from tenure.store.table import task as task_table
from tenure.store.transaction import Store, Tx


class PageRef(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Which page is wanted: what follows a position of a run that is held in this attempt."""

    task_id: str
    attempt: int
    after: int


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
    keys = {(namespace, each.task_id) for each in wanted}
    tasks = {task.id: task for task in await task_table.read_tasks(tx, keys)}
    missing = [key for key in keys if key[1] not in tasks]
    if missing:
        tasks |= {task.id: task for task in await task_table.load_history(tx, missing)}
    refusals = [_refusal(tasks.get(each.task_id), each, worker_id) for each in wanted]
    places = [
        (_journal_of(tasks[each.task_id]), each.after)
        for each, refusal in zip(wanted, refusals, strict=True)
        if refusal is None
    ]
    pages = iter(await journal_table.read_pages(tx, places, bytes_max=FRAME_BYTES))
    return [next(pages) if refusal is None else refusal.to_error() for refusal in refusals]


def _refusal(task: Task | None, wanted: PageRef, worker_id: str) -> Rejection | None:
    """Refuse whoever could not report a step either."""
    if task is None or task.link is None or task.link.journal_id is None:
        return Rejection("not_found", f"Run {wanted.task_id} was not found.")
    event = StepsRecorded(attempt=wanted.attempt, worker_id=worker_id)
    decision = task_rules.decide(task, event, 0)
    return decision if isinstance(decision, Rejection) else None


def _journal_of(task: Task) -> str:
    assert task.link is not None
    assert task.link.journal_id is not None
    return task.link.journal_id
