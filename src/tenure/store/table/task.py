"""Tasks and attempts, live and finished: records in, records out. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from tenure.core.task.attempt import Attempt
from tenure.core.task.record import AttemptProgress, Task
from tenure.core.worker.record import Worker
from tenure.store.table import codec
from tenure.store.table.damaged_row import suspect_from, tasks_from
from tenure.store.table.fence import check_fence
from tenure.store.transaction import Tx

TaskKey = tuple[str, str]
"""(namespace, id)"""


class Demand(msgspec.Struct, frozen=True, gc=False):
    """One probe of the claim: how many of one type, line and priority range, from where on."""

    namespace: str
    queue: str
    type: str
    line: int
    priority_min: int
    priority_max: int
    mark_run_at_ms: int
    mark_id: str
    amount: int


async def load_tasks(tx: Tx, keys: Iterable[TaskKey]) -> list[Task]:
    """Load and lock live tasks, without their inputs, in the order of their keys."""
    return tasks_from(await tx.each("load_tasks", sorted(keys)), codec.task_from)


async def read_tasks(tx: Tx, keys: Iterable[TaskKey]) -> list[Task]:
    """Read live tasks without locking them."""
    return tasks_from(await tx.each("read_tasks", sorted(keys)), codec.task_from)


async def load_history(tx: Tx, keys: Iterable[TaskKey]) -> list[Task]:
    """Read finished tasks."""
    return tasks_from(await tx.each("load_history", sorted(keys)), codec.finished_from)


async def load_ended(tx: Tx, keys: Iterable[tuple[str, str, int]]) -> list[Attempt]:
    """Read ended attempts by (namespace, task, number)."""
    return [codec.attempt_from(row) for row in await tx.each("load_ended", sorted(keys))]


async def load_attempts(tx: Tx, key: TaskKey) -> list[Attempt]:
    """Read all ended attempts of a task but the last one of a finished task."""
    return [codec.attempt_from(row) for row in await tx.each("load_attempts", [key])]


async def load_due(tx: Tx, *, now_ms: int, amount: int) -> list[Task]:
    """Lock tasks whose timer has fired; others that are looked at are left out, and inputs."""
    return tasks_from(await tx.one("load_due", now_ms, amount), codec.task_from)


async def load_held(tx: Tx, worker: Worker, *, amount: int) -> list[Task]:
    """Lock what a worker holds; inputs are not read."""
    rows = await tx.one("load_held", worker.namespace, worker.queue, worker.id, amount)
    return tasks_from(rows, codec.task_from)


async def claim_tasks(tx: Tx, demands: Sequence[Demand]) -> list[Task]:
    """Lock the head of each line that is asked for; large inputs are left in the store."""
    rows = await tx.each("claim_tasks", [msgspec.structs.astuple(each) for each in demands])
    return tasks_from(rows, codec.claimed_from)


async def load_inputs(tx: Tx, keys: Iterable[TaskKey]) -> dict[TaskKey, bytes]:
    """Read the inputs of tasks that this transaction has locked; damaged ones are left out."""
    rows: Sequence[codec.AnyRow] = await tx.each("load_inputs", sorted(keys))
    return {(row[0], row[1]): row[2] for row in rows if codec.is_input_sound(*row[2:])}


async def load_suspects(
    tx: Tx,
    workers: Iterable[tuple[str, str, str]],
) -> list[tuple[str, AttemptProgress]]:
    """Return the suspects of the crash guard that (namespace, queue, worker) hold, by worker."""
    rows = await tx.each("load_suspects", sorted(workers))
    return [suspect_from(row) for row in rows]


async def load_cancelling(tx: Tx, worker_ids: Iterable[str]) -> list[tuple[str, str, int]]:
    """Return (worker, task, attempt) of what is being cancelled on these workers."""
    rows = await tx.each("load_cancelling", [(each,) for each in sorted(worker_ids)])
    return [cast("tuple[str, str, int]", tuple(row)) for row in rows]


async def count_held(tx: Tx, queues: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Count the live attempts that workers hold, per queue."""
    rows = await tx.each("count_held", sorted(queues))
    return {cast("tuple[str, str]", (row[0], row[1])): cast("int", row[2]) for row in rows}


async def insert_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write new tasks."""
    await tx.each("insert_tasks", [codec.task_inserted(task) for task in tasks])


async def insert_finished(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write tasks that were finished before they were ever stored."""
    await tx.each("insert_history", [codec.history_inserted(task) for task in tasks])


async def update_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write changed tasks, each fenced by the version that was read."""
    written = await tx.fenced("update_tasks", [codec.task_updated(task) for task in tasks])
    check_fence(tasks, written)


async def finish_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Move finished tasks to history, each fenced by the version that was read."""
    written = await tx.fenced("finish_tasks", [codec.task_finished(task) for task in tasks])
    check_fence(tasks, written)


async def insert_attempts(tx: Tx, attempts: Sequence[Attempt]) -> None:
    """Write ended attempts."""
    await tx.each("insert_attempts", [codec.attempt_inserted(each) for each in attempts])
