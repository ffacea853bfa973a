"""Groups, and the journals of their results: records in, records out. Nothing is decided here."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from tenure.core.group.record import Group
from tenure.core.journal.entry import Entry, JournalPage, day_of
from tenure.core.limits import JOURNAL_PAGE_BYTES_MAX, JOURNAL_PAGE_ENTRIES_MAX
from tenure.store.failure import FenceLost
from tenure.store.table.codec import AnyRow
from tenure.store.table.journal import append_entries, entry_from
from tenure.store.table.row_set import RowSet, Table
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets

GroupCall = tuple[str, str]
"""(journal of the run, key of the call)"""


def _group_from(row: AnyRow) -> Group:
    return Group(
        group_id=row[0],
        namespace=row[1],
        run_id=row[2],
        journal_id=row[3],
        key=row[4],
        call_index=row[5],
        type=row[6],
        fails_fast=bool(row[7]),
        total=row[8],
        has_ended=bool(row[9]),
        is_closed=bool(row[10]),
        spawned=row[11],
        open_count=row[12],
        failed_count=row[13],
        cancelled_count=row[14],
        version=row[15],
    )


def _groups_from(rows: Sequence[object]) -> list[Group]:
    return [_group_from(row) for row in cast("Sequence[AnyRow]", rows)]


async def load_groups(tx: Tx, group_ids: Iterable[str]) -> list[Group]:
    """Load and lock groups, in the order of their ids."""
    return _groups_from(await tx.each("load_groups", [(each,) for each in sorted(group_ids)]))


async def find_groups(tx: Tx, calls: Iterable[GroupCall]) -> list[Group]:
    """Read groups by the calls that made them; whoever writes one has locked its run."""
    return _groups_from(await tx.each("find_groups", sorted(calls)))


async def read_open_groups(tx: Tx, journal_ids: Iterable[str]) -> list[Group]:
    """Read the groups of runs that have not ended."""
    given = [(each,) for each in sorted(journal_ids)]
    return _groups_from(await tx.each("read_open_groups", given))


async def read_groups(tx: Tx, run: TaskKey, *, amount: int) -> list[Group]:
    """Read groups of a run, the newest first, those of earlier generations too."""
    return _groups_from(await tx.one("read_groups", *run, amount))


async def read_results(tx: Tx, group: Group, *, after: int) -> JournalPage:
    """Read the results of a group behind a position, as many as go into a page."""
    rows = await tx.one(
        "read_results",
        group.group_id,
        day_of(group.group_id),
        after,
        JOURNAL_PAGE_ENTRIES_MAX,
        JOURNAL_PAGE_BYTES_MAX,
    )
    entries = tuple([entry_from(row) for row in cast("Sequence[AnyRow]", rows)])
    return JournalPage(after, entries, group.total, group_key=group.key)


async def insert_groups(tx: Tx, groups: Sequence[Group]) -> None:
    """Write new groups."""
    await tx.each("insert_groups", [msgspec.structs.astuple(each) for each in groups])


async def update_groups(tx: Tx, groups: Sequence[Group]) -> None:
    """Write changed groups, each fenced by the version that was read."""
    rows = [
        (
            each.group_id,
            each.version,
            each.has_ended,
            each.is_closed,
            each.spawned,
            each.open_count,
            each.failed_count,
            each.cancelled_count,
        )
        for each in groups
    ]
    if await tx.fenced("update_groups", rows) != len(rows):
        raise FenceLost(frozenset(each.run_id for each in groups))


class GroupRows(RowSet[str, Group]):
    """Groups by id, locked; also those of ``calls``, which name a run and the key of a call.

    ``entries`` are the ends of items, with the task that each is of.
    """

    __slots__ = ("by_call", "calls", "entries")

    table = Table(
        operator.attrgetter("group_id"),
        load=load_groups,
        insert=insert_groups,
        update=update_groups,
    )

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.calls: set[tuple[TaskKey, str]] = set()
        self.by_call: dict[GroupCall, str] = {}
        self.entries: list[tuple[Entry, TaskKey]] = []

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Find the groups of calls; their runs are locked by now."""
        found = []
        for key, group_key in self.calls:
            task = rows.tasks.get(key)
            if task is not None and task.link is not None and task.link.journal_id is not None:
                found.append((task.link.journal_id, group_key))
        if found:
            for group in await find_groups(tx, found):
                self.take(group)
        await super().load(tx, rows)

    async def load_more(self, tx: Tx, group_ids: Iterable[str]) -> None:
        """Load groups whose items were not known before; one that is known stays as it is."""
        missing = {each for each in group_ids if each not in self and each not in self.wanted}
        if missing:
            self.wanted |= missing
            for group in await load_groups(tx, missing):
                self.take(group)

    def add(self, record: Group) -> None:
        """Add a group that is not stored yet."""
        super().add(record)
        self.by_call[record.journal_id, record.key] = record.group_id

    def take(self, record: Group) -> str:
        """Add a group as it was read."""
        self.by_call[record.journal_id, record.key] = record.group_id
        return super().take(record)

    def of_call(self, journal_id: str, key: str) -> Group | None:
        """Return the group of a call, if it has been made."""
        group_id = self.by_call.get((journal_id, key))
        return None if group_id is None else self[group_id]

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Write groups, each once, then the ends of their items."""
        await super().save(tx, rows)
        if self.entries:
            await append_entries(tx, self.entries)
