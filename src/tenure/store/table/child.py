"""Children of runs: how many are live and which, and who has external ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec

from tenure.core.limits import OPEN_CHILDREN_MAX
from tenure.core.run.record import Origin, RunLink
from tenure.store.table.codec import AnyRow
from tenure.store.table.row_set import RowSet, Table
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets

LOWEST_ID: Final = "00000000-0000-0000-0000-000000000000"


class LiveChild(msgspec.Struct, frozen=True, gc=False):
    """A live child of a run, or an item of a group: where it belongs, and whether it is a run."""

    id: str
    type: str
    is_run: bool
    place: Origin


async def count_children(tx: Tx, parents: Iterable[TaskKey]) -> dict[TaskKey, int]:
    """Count the live children of runs, up to one more than a run may have."""
    rows = await tx.each("count_children", sorted(parents), OPEN_CHILDREN_MAX + 1)
    found = cast("Sequence[AnyRow]", rows)
    return {(row[0], row[1]): row[2] for row in found}


async def find_children(
    tx: Tx, parent: TaskKey, *, after: str = LOWEST_ID, amount: int
) -> list[TaskKey]:
    """Return the live children of a run or a group behind an id, in the order of ids, unlocked."""
    rows = cast("Sequence[AnyRow]", await tx.each("find_children", [(*parent, after)], amount))
    return [(row[0], row[2]) for row in rows]


async def read_children(
    tx: Tx, parents: Iterable[tuple[str, str, str]], *, amount: int
) -> dict[TaskKey, list[LiveChild]]:
    """Return live children by (namespace, parent, id behind which), each parent so many."""
    found: dict[TaskKey, list[LiveChild]] = {}
    rows = cast("Sequence[AnyRow]", await tx.each("read_children", sorted(parents), amount))
    for namespace, parent_id, id_, task_type, journal_id, origin in rows:
        place = RunLink(origin=origin).place
        child = LiveChild(id_, task_type, journal_id is not None, place)
        found.setdefault((namespace, parent_id), []).append(child)
    return found


async def find_live_external(
    tx: Tx, names: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """Return the live runs that have external ids, by (namespace, external id)."""
    rows = cast("Sequence[AnyRow]", await tx.each("find_live_external", sorted(names)))
    return {(row[0], row[1]): row[2] for row in rows}


class ChildRows(RowSet[TaskKey, int]):
    """How many live children runs have, by run, and who has the ``external`` ids of new ones.

    Nothing is written here: children are tasks.
    """

    __slots__ = ("external", "owners")

    table = Table(lambda count: count, load=count_children, is_locked=False)

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.external: set[tuple[str, str]] = set()
        self.owners: dict[tuple[str, str], str] = {}

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Count the children of runs that are locked by now, and look up external ids."""
        del rows
        if self.wanted:
            self.update(await count_children(tx, self.wanted))
        if self.external:
            self.owners.update(await find_live_external(tx, self.external))
