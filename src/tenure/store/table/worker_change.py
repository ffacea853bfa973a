"""The changes of workers: written with the change itself, and read for people."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import cast

import msgspec

from tenure.core.worker.change import ChangeKind, WorkerChange
from tenure.store.table.codec import AnyRow
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx


class Drain(msgspec.Struct, frozen=True, gc=False):
    """When a drain was committed; one that an operator requested has a record in the audit log."""

    at_ms: int
    audit_id: str


async def insert_changes(tx: Tx, changes: Iterable[WorkerChange]) -> None:
    """Write changes."""
    await tx.each("insert_worker_changes", [_written(each) for each in changes])


def _written(change: WorkerChange) -> tuple[object, ...]:
    return (
        change.namespace,
        change.worker_id,
        change.id,
        change.at_ms,
        change.kind,
        change.cause,
        change.audit_id,
    )


async def list_changes(
    tx: Tx, key: tuple[str, str], *, before_id: str, amount: int
) -> list[WorkerChange]:
    """Return the changes of a worker, by its namespace and its id, newest first."""
    rows = await tx.one("list_worker_changes", *key, before_id, amount)
    return [_change_from(row) for row in rows]


def _change_from(row: AnyRow) -> WorkerChange:
    return WorkerChange(
        id=row[0],
        namespace=row[1],
        worker_id=row[2],
        at_ms=row[3],
        kind=ChangeKind(row[4]),
        cause=row[5],
        audit_id=row[6],
    )


async def read_drains(tx: Tx, keys: Iterable[tuple[str, str]]) -> dict[str, Drain]:
    """Return when workers began to drain, by their ids."""
    rows = await tx.each("read_drains", sorted(keys))
    return {cast("str", row[0]): Drain(cast("int", row[1]), cast("str", row[2])) for row in rows}


async def delete_changes(tx: Tx, *, before_ms: int, amount: int) -> int:
    """Delete changes from before; return how many."""
    return len(await tx.one("delete_worker_changes", before_ms, amount))


class WorkerChangeRows(RowSet[str, WorkerChange]):
    """Changes of workers, by id; they are only written."""

    table = Table(operator.attrgetter("id"), insert=insert_changes)
