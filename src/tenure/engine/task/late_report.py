"""Completions that were refused: a worker that is over is told so, whatever else was wrong.

Most completions are accepted, from whomever, and their workers are not read. What an offline worker
completes counts as long as its attempt has not ended, and a repeated completion gets its answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.worker import decide as worker_rules
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import AnyCommand
from tenure.engine.task import command as c
from tenure.errors import Rejection
from tenure.store.table import worker as worker_table
from tenure.store.transaction import Tx


async def name_ended_workers(
    tx: Tx, ws: WorkingSet, commands: Sequence[AnyCommand], answers: list[object]
) -> None:
    """Replace the refusals of completions by workers that are not live."""
    unread = ws.refused_workers - ws.workers.keys()
    found = await worker_table.read_workers(tx, unread) if unread else []
    workers = {**{each.id: each for each in found}, **ws.workers}
    for index, command in enumerate(commands):
        answer = answers[index]
        if not isinstance(command, c.FinishTasks) or not isinstance(answer, tuple):
            continue
        worker_id = command.worker_id
        if worker_id is None or worker_id not in ws.refused_workers:
            continue
        inactive = worker_rules.report_refusal(
            workers.get(worker_id), namespace=command.namespace, worker_id=worker_id
        )
        if inactive is not None:
            answers[index] = tuple(
                inactive if isinstance(item, Rejection) else item for item in answer
            )
