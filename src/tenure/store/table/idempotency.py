"""Idempotency keys of enqueues: records in, records out."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from tenure.store.table.row_set import RowSet, Table
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets


class Key(msgspec.Struct, frozen=True, gc=False):
    """An idempotency key and the end of its task, if it has ended."""

    namespace: str
    key: str
    task_id: str
    digest: bytes
    finished_at_ms: int | None
    is_task_live: bool
    # For a new key; it is written and never read.
    created_at_ms: int = 0


async def lock_keys(tx: Tx, keys: Iterable[TaskKey]) -> list[Key]:
    """Lock idempotency keys by (namespace, key)."""
    rows = await tx.each("lock_keys", sorted(keys))
    return [
        Key(*cast("tuple[str, str, str, bytes, int | None]", tuple(row[:5])), bool(row[5]))
        for row in rows
    ]


async def insert_keys(tx: Tx, keys: Sequence[Key]) -> None:
    """Write new keys."""
    await tx.each(
        "insert_keys", [(x.namespace, x.key, x.task_id, x.digest, x.created_at_ms) for x in keys]
    )


async def delete_keys(tx: Tx, keys: Sequence[Key]) -> None:
    """Delete expired keys."""
    await tx.each("delete_keys", [(x.namespace, x.key, x.task_id) for x in keys])


class KeyRows(RowSet[tuple[str, str], Key]):
    """Idempotency keys by (namespace, key)."""

    table = Table(
        operator.attrgetter("namespace", "key"),
        load=lock_keys,
        insert=insert_keys,
        delete=delete_keys,
    )

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Load keys; the answer to a repeated enqueue contains the state of the first task."""
        await super().load(tx, rows)
        rows.tasks.wanted.update((each.namespace, each.task_id) for each in self.values())
