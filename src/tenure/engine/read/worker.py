"""What a worker holds, how it has changed, and its last heartbeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tenure.core import check
from tenure.core.limits import HELD_SET_MAX
from tenure.core.worker.change import WorkerChange
from tenure.core.worker.record import Worker
from tenure.core.worker.stop_check import HeldAttempt
from tenure.engine.read.query import read
from tenure.engine.worker.beat_log import PastBeat
from tenure.errors import NotFound
from tenure.store.table import lease as lease_table
from tenure.store.table import listing
from tenure.store.table import worker as worker_table
from tenure.store.table.listing import NEWEST
from tenure.store.table.worker_change import list_changes
from tenure.store.transaction import Store, Tx

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class HeldList(msgspec.Struct, frozen=True):
    """What a worker holds according to the server, the longest held first, and what it reports.

    ``reported_count`` is how many attempts its last heartbeat reported; offline it reports nothing.
    """

    held: tuple[HeldAttempt, ...]
    has_more: bool
    reported_count: int | None


async def list_held(store: Store, *, namespace: str, worker_id: str, amount: int) -> HeldList:
    """Return the live attempts that name a worker."""
    amount = check.page_size(amount)

    async def body(tx: Tx) -> HeldList:
        worker = await _found(tx, namespace, worker_id)
        leases = await lease_table.read_leases(tx, [worker_id])
        place = (worker.namespace, worker.queue, worker.id)
        held = await listing.list_worker_held(tx, place, amount=min(amount, HELD_SET_MAX) + 1)
        reported = leases[0].active_count if leases else None
        return HeldList(tuple(held[:amount]), len(held) > amount, reported)

    return await read(store, body)


async def list_history(
    store: Store, *, namespace: str, worker_id: str, amount: int
) -> tuple[WorkerChange, ...]:
    """Return how a worker has changed, newest first; longer than the worker itself is kept."""
    amount = check.page_size(amount)
    key = (check.namespace(namespace), check.task_id(worker_id, "workerId"))

    async def body(tx: Tx) -> tuple[WorkerChange, ...]:
        changes = await list_changes(tx, key, before_id=NEWEST, amount=amount)
        if not changes:
            await _found(tx, *key)
        return tuple(changes)

    return await read(store, body)


async def list_beats(engine: Engine, *, namespace: str, worker_id: str) -> list[PastBeat]:
    """Return the last heartbeats of a worker, oldest first, if this server hears it."""
    await read(engine.store, lambda tx: _found(tx, namespace, worker_id))
    return engine.beat_log.of(worker_id)


async def _found(tx: Tx, namespace: str, worker_id: str) -> Worker:
    namespace = check.namespace(namespace)
    check.task_id(worker_id, "workerId")
    found = await worker_table.read_workers(tx, [worker_id])
    if not found or found[0].namespace != namespace:
        raise NotFound(f"Worker {worker_id} was not found.")
    return found[0]
