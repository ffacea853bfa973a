"""External ids of runs: which run has one, live or else the last that ended."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import msgspec

from tenure.store.table.row_set import RowSet, Table
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets

ExternalKey = tuple[str, str]
"""(namespace, external id)"""


class ExternalId(msgspec.Struct, frozen=True, gc=False):
    """An external id, the run that has it, and the input with which that run was stored."""

    namespace: str
    external_id: str
    run_id: str
    input: bytes | None = None


async def find_external(tx: Tx, keys: Iterable[ExternalKey]) -> list[ExternalId]:
    """Read the runs of external ids; those that nobody has are missing."""
    rows = await tx.each("find_external", sorted(keys))
    return [ExternalId(*cast("tuple[str, str, str, bytes | None]", tuple(row[:4]))) for row in rows]


class ExternalIdRows(RowSet[ExternalKey, ExternalId]):
    """External ids by (namespace, external id).

    Nothing is written: they stand in the rows of runs, and a unique index decides who of two has
    one. The runs are locked, so that what is decided on them stays true.
    """

    table = Table(
        operator.attrgetter("namespace", "external_id"), load=find_external, is_locked=False
    )

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Find the runs, which are loaded after this."""
        await super().load(tx, rows)
        rows.tasks.locked.update((each.namespace, each.run_id) for each in self.values())

    def give(self, key: TaskKey, external_id: str, content: bytes | None) -> None:
        """Note that a new run of this batch has an external id."""
        namespace, run_id = key
        self[namespace, external_id] = ExternalId(namespace, external_id, run_id, content)
