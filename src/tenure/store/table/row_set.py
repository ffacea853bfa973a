"""Row sets: the rows of a table that one batch wants, has loaded, and changes.

A table is one subclass. It names the functions that load and save its rows; special behaviour of a
table (a split by outcome, rows that are not found by their key) is a method. ``lock_order`` lists
all of them, in the lock order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets

Key = TypeVar("Key")
Record = TypeVar("Record")
Load = Callable[[Tx, Iterable[Any]], Awaitable[Iterable[Any]]]
Save = Callable[[Tx, Sequence[Any]], Awaitable[object]]


class Table(NamedTuple):
    """How the rows of a table are found, loaded and saved; unused functions may be missing."""

    key_of: Callable[[Any], Any]
    load: Load | None = None
    insert: Save | None = None
    update: Save | None = None
    delete: Save | None = None
    # Whether the store's time has to be read after its rows were loaded.
    is_locked: bool = True


class RowSet(dict[Key, Record]):
    """The rows of one table as they are now in a batch, by their keys.

    ``wanted`` is loaded before anything is decided, and ``loaded`` stays as it was read. ``new``,
    ``changed`` and ``removed`` are saved; ``removed`` has the rows as they were.
    """

    __slots__ = ("changed", "loaded", "new", "removed", "wanted")

    table: ClassVar[Table]
    # Whether there may be something to load or to save although nothing is wanted or changed.
    finds_more: bool
    saves_more: bool

    def __init_subclass__(cls) -> None:
        """Ask those of their own behaviour in any case, unless they say themselves when."""
        if "finds_more" not in vars(cls):
            cls.finds_more = cls.load is not RowSet.load
        if "saves_more" not in vars(cls):
            cls.saves_more = cls.save is not RowSet.save

    def __init__(self) -> None:
        """Start with nothing."""
        self.wanted: set[Key] = set()
        self.loaded: dict[Key, Record] = {}
        self.new: dict[Key, Record] = {}
        self.changed: dict[Key, Record] = {}
        self.removed: dict[Key, Record] = {}

    def add(self, record: Record) -> None:
        """Add a row that is not stored yet."""
        key = self.table.key_of(record)
        self[key] = self.new[key] = record

    def add_all(self, records: Sequence[Record]) -> None:
        """Add many rows that are not stored yet, where ``add`` does no more than it does here."""
        key_of, new = self.table.key_of, self.new
        for record in records:
            key = key_of(record)
            self[key] = new[key] = record

    def put(self, record: Record) -> None:
        """Set the new state of a row, stored or new."""
        key = self.table.key_of(record)
        changes = self.new if key in self.new else self.changed
        self[key] = changes[key] = record

    def take(self, record: Record) -> Key:
        """Add a row as it was read."""
        key: Key = self.table.key_of(record)
        self[key] = self.loaded[key] = record
        return key

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Load the wanted rows."""
        if self.wanted and self.table.load is not None:
            for record in await self.table.load(tx, self.wanted):
                self.take(record)
            if self.table.is_locked:
                rows.note_locked()

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Write the changes, each kind of change by one statement."""
        del rows
        for records, save in (
            (self.removed, self.table.delete),
            (self.changed, self.table.update),
            (self.new, self.table.insert),
        ):
            if records:
                assert save is not None
                await save(tx, list(records.values()))

    def keep_taken(self, first: RowSet[Key, Record]) -> None:
        """Keep what a first load took and a second one cannot get again."""
