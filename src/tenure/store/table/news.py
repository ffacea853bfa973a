"""Changes of other servers that this one may not know: reads by arrays, without locks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from tenure.core.worker.record import EndReason, WorkerStatus
from tenure.store.table.codec import AnyRow
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx

HeldKey = tuple[str, str, str]
"""(namespace, queue, worker)"""


class Known(msgspec.Struct, frozen=True, gc=False):
    """What a server knows of a worker: its session's number, and how many tasks it holds."""

    namespace: str
    queue: str
    worker_id: str
    session_no: int
    held_count: int


class News(msgspec.Struct, frozen=True, gc=False):
    """The stored state of a worker; without a status the worker does not exist any more."""

    worker_id: str
    status: WorkerStatus | None
    end_reason: EndReason | None
    session_no: int | None
    held_count: int


async def read_news(tx: Tx, known: Sequence[Known]) -> list[News]:
    """Read workers that are not online, have a later session, or hold less than known."""
    rows = await tx.each("read_news", [msgspec.structs.astuple(each) for each in known])
    return [_news(row) for row in rows]


def _news(row: AnyRow) -> News:
    worker_id, status, end_reason, session_no, held_count = row
    return News(
        worker_id,
        None if status is None else WorkerStatus(status),
        None if end_reason is None else EndReason(end_reason),
        session_no,
        held_count,
    )


async def read_held(tx: Tx, workers: Iterable[HeldKey]) -> dict[str, dict[str, int]]:
    """Return by worker the attempt of each task that it holds."""
    found: dict[str, dict[str, int]] = {}
    for worker_id, task_id, attempt in await tx.each("read_held", sorted(workers)):
        held = found.setdefault(cast("str", worker_id), {})
        held[cast("str", task_id)] = cast("int", attempt)
    return found


async def find_tasks(tx: Tx, keys: Iterable[TaskKey]) -> set[TaskKey]:
    """Return which tasks are live."""
    rows = await tx.each("find_tasks", sorted(keys))
    return {cast("TaskKey", (row[0], row[1])) for row in rows}
