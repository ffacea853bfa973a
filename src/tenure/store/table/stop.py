"""Stops: messages to workers about attempts that ended elsewhere, until they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tenure.core.task.effect import Stop, StopCause, TellStop
from tenure.store.table.codec import AnyRow
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets

StopKey = tuple[str, str, int]
"""(worker, task, attempt)"""


def _key_of(told: TellStop) -> StopKey:
    return told.worker_id, told.stop.task_id, told.stop.attempt


def _stop_from(row: AnyRow) -> TellStop:
    worker_id, task_id, attempt, cause = row
    return TellStop(worker_id, Stop(task_id, attempt, StopCause(cause)))


async def read_stops(tx: Tx, worker_ids: Iterable[str]) -> list[TellStop]:
    """Read the stops that are not sent yet."""
    rows = await tx.each("read_stops", [(each,) for each in sorted(worker_ids)])
    return [_stop_from(row) for row in rows]


async def take_stops(tx: Tx, worker_ids: Iterable[str]) -> list[TellStop]:
    """Take the stops that are sent now."""
    rows = await tx.each("take_stops", [(each,) for each in sorted(worker_ids)])
    return [_stop_from(row) for row in rows]


async def insert_stops(tx: Tx, stops: Sequence[TellStop]) -> None:
    """Write stops for workers."""
    await tx.each("insert_stops", [(*_key_of(each), each.stop.cause.value) for each in stops])


async def delete_stops(tx: Tx, stops: Sequence[TellStop]) -> None:
    """Delete sent stops."""
    await tx.each("delete_stops", sorted(map(_key_of, stops)))


class StopRows(RowSet[StopKey, TellStop]):
    """Stops by (worker, task, attempt); ``of_workers`` are workers whose stops are all wanted."""

    __slots__ = ("of_workers",)

    table = Table(_key_of, insert=insert_stops, delete=delete_stops, is_locked=False)

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.of_workers: set[str] = set()

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Read the stops of workers; the rows of their tasks are locked already."""
        del rows
        if self.of_workers:
            for told in await read_stops(tx, self.of_workers):
                self.take(told)

    def forget(self, worker_id: str) -> None:
        """Delete the stops of a worker: they were sent, or the worker is gone."""
        for key, told in self.loaded.items():
            if told.worker_id == worker_id:
                self.removed[key] = told
