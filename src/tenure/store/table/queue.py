"""Queues and namespaces: records in, records out."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tenure.core.queue import Namespace, Queue
from tenure.store.table import codec
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets


async def lock_queues(tx: Tx, names: Iterable[tuple[str, str]]) -> list[Queue]:
    """Lock queues, so that their held tasks can be counted."""
    return [codec.queue_from(row) for row in await tx.each("lock_queues", sorted(names))]


async def save_queues(tx: Tx, queues: Sequence[Queue]) -> None:
    """Write pause and limit of queues."""
    await tx.each(
        "save_queues",
        [(q.namespace, q.name, q.is_paused, q.concurrency_max, q.version) for q in queues],
    )


async def read_namespaces(tx: Tx, names: Iterable[str]) -> list[Namespace]:
    """Read namespaces."""
    rows = await tx.each("read_namespaces", [(name,) for name in sorted(names)])
    return [codec.namespace_from(row) for row in rows]


async def insert_namespaces(tx: Tx, namespaces: Iterable[Namespace]) -> None:
    """Write new namespaces, which are enabled."""
    await tx.each("insert_namespaces", [(each.name, each.created_at_ms) for each in namespaces])


async def set_namespaces(tx: Tx, namespaces: Iterable[Namespace]) -> None:
    """Write which namespaces are disabled."""
    await tx.each("set_namespace", [(each.name, each.is_disabled) for each in namespaces])


class QueueRows(RowSet[tuple[str, str], Queue]):
    """Queues by (namespace, name), locked so that pause and limit can be changed."""

    table = Table(operator.attrgetter("namespace", "name"), load=lock_queues, update=save_queues)


class NamespaceRows(RowSet[str, Namespace]):
    """Namespaces by name. ``known`` ones exist and are read only for administrative commands."""

    __slots__ = ("administered", "disabled", "known")

    table = Table(operator.attrgetter("name"), load=read_namespaces, is_locked=False)

    def __init__(self) -> None:
        """Start without known namespaces."""
        super().__init__()
        self.administered: set[str] = set()
        self.disabled: set[str] = set()
        self.known: frozenset[str] = frozenset()

    def know(self, enabled: frozenset[str], disabled: frozenset[str]) -> None:
        """Skip the reads of known namespaces; a read of one is newer."""
        self.known = enabled
        self.wanted -= enabled
        self.wanted |= self.administered
        self.disabled |= disabled

    def take(self, record: Namespace) -> str:
        """Add a namespace as it was read."""
        if not record.is_disabled:
            self.disabled.discard(record.name)
        else:
            self.disabled.add(record.name)
        return super().take(record)

    def put(self, record: Namespace) -> None:
        """Note that a namespace was disabled or enabled; later commands of the batch see it."""
        self[record.name] = self.changed[record.name] = record
        self.administered.add(record.name)
        if record.is_disabled:
            self.disabled.add(record.name)
        else:
            self.disabled.discard(record.name)

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Write new ones first: one may have been disabled at once."""
        del rows
        if self.new:
            await insert_namespaces(tx, self.new.values())
        if self.changed:
            await set_namespaces(tx, self.changed.values())

    def exists(self, name: str) -> bool:
        """Return whether a namespace of this name exists."""
        return name in self.known or name in self

    def looked_at(self) -> list[Namespace]:
        """Return the changed ones."""
        return [self[name] for name in self.administered if name in self]
