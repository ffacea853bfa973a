"""Pages of what is recorded of runs: entries, results of groups, and what is open.

Together they are of a bounded size: who gets less than there is asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core.group.record import Group
from tenure.core.journal import numbering
from tenure.core.journal.entry import JournalPage
from tenure.core.limits import ATTEMPT_MAX, FRAME_BYTES, OPEN_PAGE_MAX
from tenure.core.task.record import Task
from tenure.engine.run.hand_out_page import open_children, open_groups, open_next
from tenure.errors import Rejection
from tenure.store.table import child as child_table
from tenure.store.table import group as group_table
from tenure.store.table import journal as journal_table
from tenure.store.transaction import Tx

# Runs of which the open children are read by one statement: each may have a whole page.
_RUNS_AT_ONCE = 20
NO_ROOM: Final = "no_room"
"""Why a page is not there that others of the same answer have left no room for."""


class PageOf(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Which page of a run: what follows a position of its journal, or of the results of a group.

    With ``open_after`` it has the open children behind that id instead of entries.
    """

    run: Task
    after: int = 0
    group_key: str = ""
    open_after: str = ""

    @property
    def journal_id(self) -> str:
        """Return the present journal of the run."""
        assert self.run.link is not None
        assert self.run.link.journal_id is not None
        return self.run.link.journal_id

    @property
    def has_open(self) -> bool:
        """Tell whether it comes with what is open."""
        return bool(self.open_after) or not (self.after or self.group_key)


async def read_pages(
    tx: Tx, wanted: Sequence[PageOf], *, bytes_max: int = FRAME_BYTES
) -> list[JournalPage | Rejection]:
    """Read pages; a journal from its start on comes with what is open of its run."""
    of_journals = [each for each in wanted if not each.group_key]
    pages = iter(await _journals(tx, of_journals, bytes_max=bytes_max) if of_journals else ())
    found: list[JournalPage | Rejection] = []
    for each in wanted:
        answer = await _results(tx, each, bytes_max) if each.group_key else next(pages)
        if isinstance(answer, JournalPage):
            bytes_max -= numbering.page_bytes(answer)
        found.append(answer)
    return found


async def _journals(tx: Tx, wanted: Sequence[PageOf], *, bytes_max: int) -> list[JournalPage]:
    """Read entries, then what is open for those that come with it."""
    # Behind every position: where the journal ends, and nothing else.
    places = [(each.journal_id, ATTEMPT_MAX if each.open_after else each.after) for each in wanted]
    entries = await journal_table.read_pages(tx, places, bytes_max=bytes_max)
    pages = [replace(page, after=each.after) for each, page in zip(wanted, entries, strict=True)]
    bytes_max -= sum([numbering.page_bytes(page) for page in pages])
    both = list(zip(wanted, pages, strict=True))
    starts = [(each, page) for each, page in both if each.has_open]
    opened = iter(await _with_open(tx, starts, bytes_max=bytes_max))
    return [next(opened) if each.has_open else page for each, page in both]


async def _results(tx: Tx, wanted: PageOf, bytes_max: int) -> JournalPage | Rejection:
    """Read the ends of items of a group; without room it has to be asked for again.

    An empty page would say that there are none.
    """
    groups = await group_table.find_groups(tx, [(wanted.journal_id, wanted.group_key)])
    if not groups:
        return Rejection("not_found", f"Run {wanted.run.id} has no group {wanted.group_key!r}.")
    (group,) = groups
    if bytes_max <= 0:
        message = f"The answer has no room for results of {group.key}. Ask for them again."
        return Rejection("unavailable", message, {"reason": NO_ROOM, "retry_after_ms": 1})
    return await group_table.read_results(tx, group, after=wanted.after)


async def _with_open(
    tx: Tx, wanted: Sequence[tuple[PageOf, JournalPage]], *, bytes_max: int
) -> list[JournalPage]:
    """Return pages with what is open; those without room say from where to ask."""
    found = []
    for some in _of_different_runs(wanted):
        children = {}
        if bytes_max > 0:
            starts = [
                (of.run.namespace, of.run.id, of.open_after or numbering.BEFORE_ALL_IDS)
                for of, _ in some
            ]
            children = await child_table.read_children(tx, starts, amount=OPEN_PAGE_MAX)
        groups = await _open_groups(tx, [of.journal_id for of, _ in some if not of.open_after])
        has_room = bytes_max > 0
        for of, page in some:
            stored = children.get((of.run.namespace, of.run.id), [])
            behind = of.open_after or numbering.BEFORE_ALL_IDS
            full = replace(
                page,
                open=open_children(stored, of.journal_id),
                open_next=open_next(stored) if has_room else behind,
                groups=() if of.open_after else open_groups(groups.get(of.journal_id, ())),
            )
            cut = numbering.cut_open(full, bytes_max=bytes_max, behind=behind)
            bytes_max -= numbering.open_bytes(cut)
            found.append(cut)
    return found


async def _open_groups(tx: Tx, journal_ids: Sequence[str]) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in await group_table.read_open_groups(tx, journal_ids) if journal_ids else ():
        found.setdefault(group.journal_id, []).append(group)
    return found


def _of_different_runs(
    wanted: Iterable[tuple[PageOf, JournalPage]],
) -> Iterator[list[tuple[PageOf, JournalPage]]]:
    """Take some together, in their order, each run once."""
    some: list[tuple[PageOf, JournalPage]] = []
    for each in wanted:
        is_there = any(other.run.id == each[0].run.id for other, _ in some)
        if is_there or len(some) == _RUNS_AT_ONCE:
            yield some
            some = []
        some.append(each)
    if some:
        yield some
