"""Copies of journals for runs that are made from finished ones: written, and never read."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tenure.core.journal.entry import day_of
from tenure.core.limits import JOURNAL_PAGE_ENTRIES_MAX
from tenure.store.failure import Conflict
from tenure.store.table.group import find_groups, insert_groups
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx


class JournalCopy(msgspec.Struct, frozen=True, gc=False):
    """The first entries of a journal that does not change any more, for that of a new run.

    With them go the results of groups that have ended by then: the keys of their calls, each with
    the id of its copy.
    """

    old_journal_id: str
    journal_id: str
    amount: int
    run_id: str
    groups: tuple[tuple[str, str], ...] = ()


async def save_copies(tx: Tx, copies: Sequence[JournalCopy]) -> None:
    """Copy entries and groups; a part that retention has removed meanwhile is a conflict."""
    for copy in copies:
        count = await _copy_entries(tx, copy.old_journal_id, copy.journal_id, copy.amount)
        if count != copy.amount:
            message = (
                f"The journal of run {copy.run_id} would have {count} of {copy.amount} entries."
            )
            raise Conflict(message)
        if copy.groups:
            await _copy_groups(tx, copy)


async def _copy_groups(tx: Tx, copy: JournalCopy) -> None:
    new_ids = dict(copy.groups)
    found = await find_groups(tx, [(copy.old_journal_id, key) for key in new_ids])
    if len(found) != len(new_ids):
        message = f"The groups of run {copy.run_id} are not all there."
        raise Conflict(message)
    made = [
        replace(
            group,
            group_id=new_ids[group.key],
            run_id=copy.run_id,
            journal_id=copy.journal_id,
            has_ended=True,
            is_closed=True,
            open_count=0,
            version=0,
        )
        for group in found
    ]
    await insert_groups(tx, made)
    for group in found:
        # Those that were still open when their group failed have no result.
        await _copy_entries(tx, group.group_id, new_ids[group.key], group.total)


async def _copy_entries(tx: Tx, old_id: str, new_id: str, amount: int) -> int:
    """Copy entries up to a position, some at a time; return how many there were."""
    count = 0
    for after in range(0, amount, JOURNAL_PAGE_ENTRIES_MAX):
        upto = min(after + JOURNAL_PAGE_ENTRIES_MAX, amount)
        row = (old_id, day_of(old_id), new_id, day_of(new_id), after, upto)
        count += len(await tx.each("copy_entries", [row]))
    return count


class JournalCopyRows(RowSet[str, JournalCopy]):
    """Copies that a batch makes, by the journal of the new run."""

    table = Table(operator.attrgetter("journal_id"), insert=save_copies, is_locked=False)
