"""Idempotency keys of enqueues: records in, records out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx


class Key(msgspec.Struct, frozen=True, gc=False):
    """An idempotency key and the end of its task, if that has come."""

    namespace: str
    key: str
    task_id: str
    digest: bytes
    finished_at_ms: int | None
    is_task_live: bool


async def lock_keys(tx: Tx, keys: Iterable[TaskKey]) -> list[Key]:
    """Lock idempotency keys by (namespace, key)."""
    rows = await tx.each("lock_keys", sorted(keys))
    return [
        Key(*cast("tuple[str, str, str, bytes, int | None]", tuple(row[:5])), bool(row[5]))
        for row in rows
    ]


async def insert_keys(tx: Tx, keys: Sequence[tuple[str, str, str, bytes, int]]) -> None:
    """Write keys as (namespace, key, task, digest, created_at)."""
    await tx.each("insert_keys", keys)


async def delete_keys(tx: Tx, keys: Sequence[tuple[str, str, str]]) -> None:
    """Delete keys whose time is over, as (namespace, key, task)."""
    await tx.each("delete_keys", keys)
