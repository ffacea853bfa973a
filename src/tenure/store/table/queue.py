"""Queues and namespaces: records in, records out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenure.core.queue import Namespace, Queue
from tenure.store.table import codec
from tenure.store.transaction import Tx


async def lock_queues(tx: Tx, names: Iterable[tuple[str, str]]) -> list[Queue]:
    """Lock queues, so that their held tasks can be counted."""
    return [codec.queue_from(row) for row in await tx.each("lock_queues", sorted(names))]


async def save_queues(tx: Tx, queues: Sequence[Queue]) -> None:
    """Write the brakes of queues."""
    await tx.each(
        "save_queues",
        [(q.namespace, q.name, q.is_paused, q.concurrency_max, q.version) for q in queues],
    )


async def read_namespaces(tx: Tx, names: Iterable[str]) -> list[Namespace]:
    """Read namespaces."""
    rows = await tx.each("read_namespaces", [(name,) for name in sorted(names)])
    return [codec.namespace_from(row) for row in rows]
