"""Refused completions: an ended worker gets ``worker_inactive``, whatever else was wrong.

Most completions are accepted, from whomever, and their workers are not read. What an offline worker
completes counts as long as its attempt has not ended, and a repeated completion gets its answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.worker import decide as worker_rules
from tenure.core.worker.record import Worker
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
        if isinstance(command, c.FinishTasks) and command.worker_id in ws.refused_workers:
            worker = workers.get(command.worker_id)
            answers[index] = _with_inactive(command, answers[index], worker)


def _with_inactive(command: c.FinishTasks, answer: object, worker: Worker | None) -> object:
    """Put ``worker_inactive`` in the place of the refusals, if the worker is not live."""
    assert command.worker_id is not None
    inactive = worker_rules.report_refusal(
        worker, namespace=command.namespace, worker_id=command.worker_id
    )
    if inactive is None or not isinstance(answer, tuple):
        return answer
    return tuple(inactive if isinstance(item, Rejection) else item for item in answer)
