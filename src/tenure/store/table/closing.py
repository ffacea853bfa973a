"""Runs and groups whose live children have to be closed: records in, records out."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from tenure.store.table.child import LOWEST_ID, find_children
from tenure.store.table.codec import AnyRow
from tenure.store.table.row_set import RowSet, Table
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets


class Closing(msgspec.Struct, frozen=True, gc=False):
    """What has ended: a run with a journal, or a group. Children up to ``after_id`` are done."""

    namespace: str
    owner_id: str
    journal_id: str
    is_group: bool
    ended_at_ms: int
    after_id: str = LOWEST_ID

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the key of its row."""
        return self.namespace, self.owner_id, self.journal_id


async def take_closing(tx: Tx) -> Closing | None:
    """Lock the oldest closing that no other server works on."""
    rows = cast("Sequence[AnyRow]", await tx.one("take_closing"))
    if not rows:
        return None
    namespace, owner_id, journal_id, is_group, ended_at_ms, after_id = rows[0]
    return Closing(namespace, owner_id, journal_id, bool(is_group), ended_at_ms, after_id)


async def oldest_closing_ms(tx: Tx) -> int | None:
    """Return when the first owner ended whose children are not closed yet."""
    return cast("int | None", (await tx.one("oldest_closing"))[0][0])


async def insert_closings(tx: Tx, closings: Sequence[Closing]) -> int:
    """Note which owners have live children now, and which groups of runs; return how many."""
    rows = [(*each.key, each.is_group, each.ended_at_ms, LOWEST_ID) for each in closings]
    return await tx.fenced("insert_closings", sorted(rows))


async def advance_closings(tx: Tx, closings: Sequence[Closing]) -> None:
    """Note up to which child owners are done."""
    await tx.each("advance_closings", [(*each.key, each.after_id) for each in closings])


async def delete_closings(tx: Tx, closings: Sequence[Closing]) -> None:
    """Remove owners of whom no child is left to be closed."""
    await tx.each("delete_closings", [each.key for each in closings])


class ClosingRows(RowSet[tuple[str, str, str], Closing]):
    """Closings by (namespace, owner, journal).

    New ones are owners that have ended; only those with live children are written, when everything
    else of the batch is. If children are to be closed, one closing is ``taken`` with its next
    ``children``. ``opened_count`` is how many were written.
    """

    __slots__ = ("children", "opened_count", "taken")

    table = Table(
        operator.attrgetter("key"),
        insert=insert_closings,
        update=advance_closings,
        delete=delete_closings,
        is_locked=False,
    )

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.taken: Closing | None = None
        self.children: list[TaskKey] = []
        self.opened_count = 0

    async def take_children(self, tx: Tx, amount: int) -> list[TaskKey]:
        """Take a closing and find its next children, which are locked with all other tasks."""
        self.taken = await take_closing(tx)
        if self.taken is not None:
            self.take(self.taken)
            owner = (self.taken.namespace, self.taken.owner_id)
            after = self.taken.after_id
            self.children = await find_children(tx, owner, after=after, amount=amount)
        return self.children

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Write, and count the owners that have live children."""
        new, self.new = self.new, {}
        await super().save(tx, rows)
        self.new = new
        if new:
            self.opened_count = await insert_closings(tx, list(new.values()))
