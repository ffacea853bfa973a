"""Workers, and facts about ended ones: records in, records out."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from tenure.core.queue import Queue
from tenure.core.task.crash_guard import ControlGroup
from tenure.core.worker.receiver import Receiver
from tenure.core.worker.record import Worker, WorkerMode
from tenure.store.table import codec
from tenure.store.table.fence import check_fence
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets


async def count_control_group(
    tx: Tx, worker: Worker, *, since_ms: int, seen_max: int
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


async def lock_receivers(tx: Tx, worker_ids: Iterable[str]) -> list[Receiver]:
    """Lock workers against every other hand-out too, and count what they hold."""
    rows = await tx.each("lock_receivers", [(each,) for each in sorted(worker_ids)])
    return [_receiver(row, cast("int", row[26])) for row in rows]


def _receiver(row: codec.AnyRow, held_count: int | None = None) -> Receiver:
    worker = codec.worker_from(row)
    queue = None
    if row[21] is not None:
        queue = Queue(worker.namespace, worker.queue, bool(row[21]), row[22])
    return Receiver(worker, queue, row[23], row[24], row[25], held_count)


async def read_workers(tx: Tx, worker_ids: Iterable[str]) -> list[Worker]:
    """Read workers without locking them."""
    rows = await tx.each("read_workers", [(each,) for each in sorted(worker_ids)])
    return [codec.worker_from(row) for row in rows]


async def read_totals(tx: Tx, worker_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return how many attempts offline workers had completed, and how many had failed."""
    rows = await tx.each("read_totals", [(each,) for each in sorted(worker_ids)])
    return {cast("str", row[0]): (cast("int", row[1]), cast("int", row[2])) for row in rows}


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
    """Note that suspects of the crash guard explain the loss of these workers."""
    await tx.each("mark_ends_explained", [(each,) for each in sorted(worker_ids)])


async def load_releasing(tx: Tx, *, amount: int) -> list[str]:
    """Return offline workers whose tasks are not all put back yet."""
    return [cast("str", row[0]) for row in await tx.one("load_releasing", amount)]


class WorkerRows(RowSet[str, Worker]):
    """Workers by id, locked because their status may change.

    Registrations are found by (namespace, instance key, name). Workers that are only ``spoken_for``
    are not locked, and not read if they are cached as receivers. Suspects explain the loss of those
    in ``explained_ends``.
    """

    __slots__ = ("explained_ends", "registrations", "spoken_for")

    table = Table(operator.attrgetter("id"), insert=insert_workers, update=update_workers)

    def __init__(self) -> None:
        """Start without workers."""
        super().__init__()
        self.registrations: set[tuple[str, str, str]] = set()
        self.spoken_for: set[str] = set()
        self.explained_ends: set[str] = set()

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Find and lock workers, including those whose leases may have ended."""
        for namespace, instance_key, name in sorted(self.registrations):
            found = await find_workers(
                tx, namespace=namespace, instance_key=instance_key, name=name
            )
            for worker in found:
                rows.leases.wanted.add(self.take(worker))
                if worker.mode is WorkerMode.SERVED:
                    rows.seats.wanted.add(worker.id)
        if rows.receivers.uncounted:
            await self._lock_receivers(tx, rows.receivers)
        else:
            await self._lock(tx, self.wanted)
        if rows.leases.is_judging:
            await self._lock(tx, await rows.leases.find_lapsed(tx))
        if self.spoken_for:
            await self._read(tx, self.spoken_for - rows.receivers.keys())
        rows.note_locked()

    async def _read(self, tx: Tx, worker_ids: set[str]) -> None:
        for worker in await read_workers(tx, worker_ids) if worker_ids else ():
            if worker.id not in self:
                self.take(worker)

    async def _lock_receivers(self, tx: Tx, receivers: ReceiverRows) -> None:
        """Lock by one statement, in one order, those that are counted and those that may change."""
        counted = receivers.uncounted
        for receiver in await lock_receivers(tx, self.wanted | counted):
            worker_id = self.take(receiver.worker)
            if worker_id in counted:
                receivers.take(receiver)

    async def _lock(self, tx: Tx, worker_ids: set[str]) -> None:
        for worker in await lock_workers(tx, worker_ids) if worker_ids else ():
            self.take(worker)

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Save workers; a superseded one releases its name first."""
        await super().save(tx, rows)
        if self.explained_ends:
            await mark_ends_explained(tx, self.explained_ends)

    def keep_taken(self, first: RowSet[str, Worker]) -> None:
        """Keep those that were locked because their leases may have ended."""
        for worker in first.loaded.values():
            if worker.id not in self:
                self.take(worker)


class ReceiverRows(RowSet[str, Receiver]):
    """Who may be handed work, by id, kept from changing; ``brakes`` are those of their queues.

    What ``counted`` ones hold is counted, with a lock that excludes every other hand-out to them.
    """

    __slots__ = ("brakes", "counted")

    table = Table(operator.attrgetter("worker.id"), load=share_workers)

    def __init__(self) -> None:
        """Start without receivers."""
        super().__init__()
        self.brakes: dict[tuple[str, str], Queue] = {}
        self.counted: set[str] = set()

    @property
    def uncounted(self) -> set[str]:
        """Return who has to be counted; those that are remembered have been taken in already."""
        return self.counted - self.keys() if self.counted else self.counted

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Load the other receivers, unless they have been taken in already."""
        self.wanted -= self.keys()
        if self.wanted:
            await super().load(tx, rows)
        for receiver in self.values():
            worker = receiver.worker
            rows.workers.take(worker)
            # The statement that locked them has also read the time.
            rows.note_locked(receiver.now_ms)
            if receiver.queue is not None:
                self.brakes[worker.namespace, worker.queue] = receiver.queue
