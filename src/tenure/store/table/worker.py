"""Workers, and what is known of those that ended: records in, records out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from tenure.core.queue import Queue
from tenure.core.task.crash_guard import ControlGroup
from tenure.core.worker.record import Worker
from tenure.store.table import codec
from tenure.store.table.fence import check_fence
from tenure.store.transaction import Tx


class Receiver(msgspec.Struct, frozen=True, gc=False):
    """A worker that may be handed work, its queue's brakes, its lease, the time after the lock."""

    worker: Worker
    queue: Queue | None
    beat_at_ms: int | None
    lease_ms: int | None
    now_ms: int | None


async def count_control_group(
    tx: Tx,
    worker: Worker,
    *,
    since_ms: int,
    seen_max: int,
) -> ControlGroup:
    """Count the other workers of a worker's queue: those lost since an instant, and live ones."""
    rows = await tx.one(
        "count_control_group", worker.namespace, worker.queue, worker.id, since_ms, seen_max
    )
    return ControlGroup(*cast("tuple[int, int]", tuple(rows[0])))


async def lock_workers(tx: Tx, worker_ids: Iterable[str]) -> list[Worker]:
    """Lock workers whose status may change."""
    rows = await tx.each("lock_workers", [(each,) for each in sorted(worker_ids)])
    return [codec.worker_from(row) for row in rows]


async def share_workers(tx: Tx, worker_ids: Iterable[str]) -> list[Receiver]:
    """Lock workers against a change of their status for the rest of this transaction."""
    rows = await tx.each("share_workers", [(each,) for each in sorted(worker_ids)])
    return [_receiver(row) for row in rows]


def _receiver(row: codec.AnyRow) -> Receiver:
    worker = codec.worker_from(row)
    queue = None
    if row[21] is not None:
        queue = Queue(worker.namespace, worker.queue, bool(row[21]), row[22])
    return Receiver(worker, queue, row[23], row[24], row[25])


async def read_workers(tx: Tx, worker_ids: Iterable[str]) -> list[Worker]:
    """Read workers without locking them."""
    rows = await tx.each("read_workers", [(each,) for each in sorted(worker_ids)])
    return [codec.worker_from(row) for row in rows]


async def find_workers(tx: Tx, *, namespace: str, instance_key: str, name: str) -> list[Worker]:
    """Lock the incarnation with this key, and the live one with this name."""
    rows = await tx.one("find_workers", namespace, instance_key, name)
    return [codec.worker_from(row) for row in rows]


async def insert_workers(tx: Tx, workers: Sequence[Worker]) -> None:
    """Write new incarnations."""
    await tx.each("insert_workers", [codec.worker_inserted(each) for each in workers])


async def update_workers(tx: Tx, workers: Sequence[Worker]) -> None:
    """Write changed workers, each fenced by the version that was read."""
    written = await tx.fenced("update_workers", [codec.worker_updated(each) for each in workers])
    check_fence(workers, written)


async def mark_ends_explained(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Note that suspects of the crash guard explain why these workers died."""
    await tx.each("mark_ends_explained", [(each,) for each in sorted(worker_ids)])


async def load_releasing(tx: Tx, *, amount: int) -> list[str]:
    """Return offline workers whose tasks are not all put back yet."""
    return [cast("str", row[0]) for row in await tx.one("load_releasing", amount)]
