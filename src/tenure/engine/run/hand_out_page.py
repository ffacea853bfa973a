"""What a worker gets of the journal of a run that it is handed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenure.core.limits import WORK_BATCH_BYTES_MAX
from tenure.core.run.record import NOT_BEGUN
from tenure.core.task.record import Task
from tenure.engine.batch.working_set import WorkingSet
from tenure.store.transaction import Tx

Assigned = tuple[Task, int]
"""A task that is handed out, and the offer that gets it."""


async def with_pages(tx: Tx, ws: WorkingSet, assigned: Sequence[Assigned]) -> list[Assigned]:
    """Return hand-outs in which each run has a page of its journal."""
    runs = [task for task, _ in assigned if _has_journal(task)]
    wanted = [(task, _seen_by_holder(task)) for task in runs]
    pages = await ws.journals.pages(tx, wanted, bytes_max=WORK_BATCH_BYTES_MAX)
    page_of = {task.id: page for task, page in zip(runs, pages, strict=True)}
    found = []
    for task, offer_id in assigned:
        given = task
        if _has_journal(task):
            assert task.link is not None
            given = replace(task, link=replace(task.link, page=page_of[task.id]))
        found.append((given, offer_id))
    return found


def _has_journal(task: Task) -> bool:
    return task.link is not None and task.link.journal_id is not None


def _seen_by_holder(task: Task) -> int:
    """Return up to where its worker has the journal: the one that had it last may still have it."""
    run = task.progress.run or NOT_BEGUN
    return run.seen if run.home_worker_id == task.worker_id else 0
