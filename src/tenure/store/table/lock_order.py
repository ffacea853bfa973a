"""All tables of a batch in the order in which their rows are locked and saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar, cast

from tenure.store.table.access import AccessRows, AuditRows
from tenure.store.table.child import ChildRows
from tenure.store.table.closing import ClosingRows
from tenure.store.table.external_id import ExternalIdRows
from tenure.store.table.group import GroupRows
from tenure.store.table.idempotency import KeyRows
from tenure.store.table.journal import JournalRows
from tenure.store.table.journal_copy import JournalCopyRows
from tenure.store.table.lease import LeaseRows
from tenure.store.table.queue import NamespaceRows, QueueRows
from tenure.store.table.row_set import RowSet
from tenure.store.table.stop import StopRows
from tenure.store.table.task import AttemptRows, TaskRows
from tenure.store.table.worker import ReceiverRows, WorkerRows
from tenure.store.table.worker_change import WorkerChangeRows
from tenure.store.transaction import Tx

S = TypeVar("S", bound=RowSet[Any, Any])

# A new table is one line here, at its place in the lock order; append-only tables come last.
LOCK_ORDER: Final[list[type[RowSet[Any, Any]]]] = [
    AccessRows,
    QueueRows,
    WorkerRows,
    ReceiverRows,
    LeaseRows,
    KeyRows,
    ExternalIdRows,
    TaskRows,
    ChildRows,
    GroupRows,
    JournalRows,
    JournalCopyRows,
    StopRows,
    AttemptRows,
    NamespaceRows,
    AuditRows,
    WorkerChangeRows,
    ClosingRows,
]


def _make(kinds: list[type[RowSet[Any, Any]]]) -> dict[Any, Any]:
    """Return an empty row set of each kind, by its type; that they agree a type cannot say."""
    return {kind: kind() for kind in kinds}


class RowSets:
    """The row sets of one batch."""

    def __init__(self) -> None:
        """Start with nothing wanted."""
        # Made for every batch: each call counts.
        self._by_type = rows = _make(LOCK_ORDER)
        self.access: AccessRows = rows[AccessRows]
        self.queues: QueueRows = rows[QueueRows]
        self.workers: WorkerRows = rows[WorkerRows]
        self.receivers: ReceiverRows = rows[ReceiverRows]
        self.leases: LeaseRows = rows[LeaseRows]
        self.keys: KeyRows = rows[KeyRows]
        self.external_ids: ExternalIdRows = rows[ExternalIdRows]
        self.tasks: TaskRows = rows[TaskRows]
        self.children: ChildRows = rows[ChildRows]
        self.groups: GroupRows = rows[GroupRows]
        self.journals: JournalRows = rows[JournalRows]
        self.journal_copies: JournalCopyRows = rows[JournalCopyRows]
        self.stops: StopRows = rows[StopRows]
        self.attempts: AttemptRows = rows[AttemptRows]
        self.namespaces: NamespaceRows = rows[NamespaceRows]
        self.audit: AuditRows = rows[AuditRows]
        self.closings: ClosingRows = rows[ClosingRows]
        self.now_ms = 0
        # The time as read by a statement that locked rows, if no later one has locked others.
        self.locked_at_ms: int | None = None

    def __getitem__(self, kind: type[S]) -> S:
        """Return the rows of one table."""
        return cast("S", self._by_type[kind])

    def __iter__(self) -> Iterator[RowSet[Any, Any]]:
        """Return all of them in the lock order."""
        return iter(self._by_type.values())

    def note_locked(self, at_ms: int | None = None) -> None:
        """Note that rows were locked, and the time if the same statement has read it."""
        self.locked_at_ms = at_ms

    async def load(self, tx: Tx) -> None:
        """Load and lock the wanted rows, then read the store's time."""
        for each in self._by_type.values():
            if each.wanted or each.finds_more:
                await each.load(tx, self)
        self.now_ms = await tx.now_ms() if self.locked_at_ms is None else self.locked_at_ms

    async def save(self, tx: Tx) -> None:
        """Write the changes, every write of a live row fenced by its version."""
        for each in self._by_type.values():
            if each.new or each.changed or each.removed or each.saves_more:
                await each.save(tx, self)

    def keep_taken(self, first: RowSets) -> None:
        """Keep what a first load took by a write or a lock that cannot be repeated."""
        for again, before in zip(self, first, strict=True):
            again.keep_taken(before)
