"""All tables of a batch in the order in which their rows are locked and saved."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, cast

from tenure.store.table.access import AccessRows, AuditRows
from tenure.store.table.child import ChildRows
from tenure.store.table.closing import ClosingRows
from tenure.store.table.endpoint import EndpointRows
from tenure.store.table.external_id import ExternalIdRows
from tenure.store.table.group import GroupRows
from tenure.store.table.idempotency import KeyRows
from tenure.store.table.journal import JournalRows
from tenure.store.table.journal_copy import JournalCopyRows
from tenure.store.table.lease import LeaseRows
from tenure.store.table.queue import NamespaceRows, QueueRows
from tenure.store.table.row_set import RowSet
from tenure.store.table.schedule import ScheduleRows
from tenure.store.table.seat import SeatRows
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
    SeatRows,
    EndpointRows,
    KeyRows,
    ScheduleRows,
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


class _Attribute(Generic[S]):
    """The rows of one table as an attribute of ``RowSets``, made when it is first read."""

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, rows: RowSets, owner: type) -> S:
        # From now on it is found without this function.
        made = rows.__dict__[self._name] = rows[self._kind]
        return made


class RowSets:
    """The row sets of one batch, each made when it is first asked for.

    So a batch costs what its commands need, however many tables there are: a set that is not among
    those that are ``made`` has nothing to load and nothing to save.
    """

    access = _Attribute(AccessRows)
    queues = _Attribute(QueueRows)
    workers = _Attribute(WorkerRows)
    receivers = _Attribute(ReceiverRows)
    leases = _Attribute(LeaseRows)
    seats = _Attribute(SeatRows)
    endpoints = _Attribute(EndpointRows)
    keys = _Attribute(KeyRows)
    schedules = _Attribute(ScheduleRows)
    external_ids = _Attribute(ExternalIdRows)
    tasks = _Attribute(TaskRows)
    children = _Attribute(ChildRows)
    groups = _Attribute(GroupRows)
    journals = _Attribute(JournalRows)
    journal_copies = _Attribute(JournalCopyRows)
    stops = _Attribute(StopRows)
    attempts = _Attribute(AttemptRows)
    namespaces = _Attribute(NamespaceRows)
    audit = _Attribute(AuditRows)
    closings = _Attribute(ClosingRows)

    def __init__(self) -> None:
        """Start with nothing wanted."""
        self.made: dict[type[RowSet[Any, Any]], RowSet[Any, Any]] = {}
        self.now_ms = 0
        # The time as read by a statement that locked rows, if no later one has locked others.
        self.locked_at_ms: int | None = None

    def __getitem__(self, kind: type[S]) -> S:
        """Return the rows of one table."""
        found = self.made.get(kind)
        if found is None:
            found = self.made[kind] = kind()
        return cast("S", found)

    @property
    def has_endpoints(self) -> bool:
        """Whether endpoints were looked at."""
        return EndpointRows in self.made

    @property
    def has_reports(self) -> bool:
        """Whether holders of runs have reported entries."""
        return JournalRows in self.made and bool(self.journals.holders)

    @property
    def has_schedules(self) -> bool:
        """Whether schedules were looked at."""
        return ScheduleRows in self.made

    def note_locked(self, at_ms: int | None = None) -> None:
        """Note that rows were locked, and the time if the same statement has read it."""
        self.locked_at_ms = at_ms

    async def load(self, tx: Tx) -> None:
        """Load and lock the wanted rows, then read the store's time."""
        made = self.made
        for kind in LOCK_ORDER:
            # One set may want more of the next, which is made by that.
            if kind in made:
                each = made[kind]
                if each.wanted or each.finds_more:
                    await each.load(tx, self)
        self.now_ms = await tx.now_ms() if self.locked_at_ms is None else self.locked_at_ms

    async def save(self, tx: Tx) -> None:
        """Write the changes, every write of a live row fenced by its version."""
        made = self.made
        for kind in LOCK_ORDER:
            if kind in made:
                each = made[kind]
                if each.new or each.changed or each.removed or each.saves_more:
                    await each.save(tx, self)

    def keep_taken(self, first: RowSets) -> None:
        """Keep what a first load took by a write or a lock that cannot be repeated."""
        for kind in LOCK_ORDER:
            if kind in first.made:
                self[kind].keep_taken(first.made[kind])
