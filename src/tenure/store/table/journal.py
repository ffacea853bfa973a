"""The journals of runs: entries are only ever appended, and the insert fences itself."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from tenure.core.journal.entry import Entry, EntryKind, JournalPage, day_of
from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import JOURNAL_PAGE_BYTES_MAX, JOURNAL_PAGE_ENTRIES_MAX
from tenure.core.task.record import TERMINAL, Task
from tenure.store.failure import FenceLost
from tenure.store.table.codec import AnyRow
from tenure.store.table.row_set import RowSet, Table
from tenure.store.table.task import TaskKey, TaskRows
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets

EntryKey = tuple[str, int]
"""(journal, position)"""
json_encode = msgspec.json.Encoder().encode
_CARRIED = frozenset({EntryKind.SIGNAL, EntryKind.CANCEL})
_KINDS = {kind.value: kind for kind in EntryKind}


class Holder(msgspec.Struct, frozen=True, gc=False):
    """Who reports an entry: the worker that must hold the run for it to be written."""

    namespace: str
    task_id: str
    worker_id: str


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where an entry stands that an attempt has reported under a number."""

    no: int
    pos: int
    at_ms: int


class StepRef(msgspec.Struct, frozen=True, gc=False):
    """What one report says of itself: of which run and attempt it is, and where it begins."""

    key: TaskKey
    attempt: int
    first_no: int


class Carried(msgspec.Struct, frozen=True, gc=False):
    """What a run that begins anew takes along: signals at positions, and all behind another."""

    seen: int
    keep: tuple[int, ...] = ()

    def has(self, pos: int) -> bool:
        """Tell whether the signal at a position goes along."""
        return pos > self.seen or pos in self.keep


def entry_from(row: AnyRow) -> Entry:
    """Return an entry from the columns of ``read_entries``."""
    journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body = row
    return Entry(
        journal_id=journal_id,
        pos=pos,
        at_ms=at_ms,
        attempt=attempt,
        no=no,
        kind=_KINDS[kind],
        key=key,
        body=body,
        total_bytes=total_bytes,
    )


async def read_ends(tx: Tx, journal_ids: Iterable[str]) -> dict[str, JournalEnd]:
    """Read where journals end; one without entries has none."""
    given = [(each, day_of(each)) for each in sorted(journal_ids)]
    rows = cast("Sequence[AnyRow]", await tx.each("read_journal_ends", given))
    return {row[0]: JournalEnd(*row) for row in rows}


async def read_page(tx: Tx, journal_id: str, *, after: int) -> JournalPage:
    """Read the entries behind a position, as many as go into one page, and where it all ends."""
    ends = await read_ends(tx, [journal_id])
    end = ends.get(journal_id, JournalEnd(journal_id))
    entries = await _read_entries(tx, {journal_id: after} if end.pos > after else {})
    return JournalPage(after, tuple(entries.get(journal_id, ())), end.pos)


async def read_pages(
    tx: Tx, wanted: Sequence[tuple[str, int]], *, bytes_max: int
) -> list[JournalPage]:
    """Read what follows a position of each journal; what is too much together has no entries."""
    ends = await read_ends(tx, {journal_id for journal_id, _ in wanted}) if wanted else {}
    after_of: dict[str, int] = {}
    for journal_id, after in wanted:
        end = ends.get(journal_id)
        if end is not None and end.pos > after and journal_id not in after_of and bytes_max > 0:
            after_of[journal_id] = after
            bytes_max -= min(end.total_bytes, JOURNAL_PAGE_BYTES_MAX)
    entries = await _read_entries(tx, after_of) if after_of else {}
    pages = []
    for journal_id, after in wanted:
        end = ends.get(journal_id)
        found = entries.get(journal_id, ()) if after_of.get(journal_id) == after else ()
        pages.append(JournalPage(after, tuple(found), 0 if end is None else end.pos))
    return pages


async def _read_entries(tx: Tx, after_of: Mapping[str, int]) -> dict[str, list[Entry]]:
    """Read the first entries behind a position of each journal, as many as go into a page."""
    given = [(each, day_of(each), after) for each, after in sorted(after_of.items())]
    found: dict[str, list[Entry]] = {}
    bounds = (JOURNAL_PAGE_ENTRIES_MAX, JOURNAL_PAGE_BYTES_MAX)
    for row in await tx.each("read_entries", given, *bounds):
        entry = entry_from(row)
        found.setdefault(entry.journal_id, []).append(entry)
    return found


async def read_of_key(tx: Tx, journal_id: str, key: str) -> list[Entry]:
    """Read the last entry of each kind that a call of a run has left."""
    rows = await tx.one("read_key_entries", journal_id, day_of(journal_id), key)
    return [entry_from(row) for row in rows]


async def first_foreign(tx: Tx, journal_id: str, *, after: int, attempt: int) -> int | None:
    """Return the first position behind another one that an attempt has not written itself."""
    rows = await tx.one("read_foreign_entry", journal_id, day_of(journal_id), after, attempt)
    return cast("int | None", rows[0][0])


async def read_carried(tx: Tx, wanted: Mapping[str, Carried]) -> dict[str, list[Entry]]:
    """Read the signals and cancels of journals that their runs take along."""
    given = [
        (journal_id, day_of(journal_id), each.seen, json_encode(each.keep).decode())
        for journal_id, each in sorted(wanted.items())
    ]
    found: dict[str, list[Entry]] = {}
    for row in await tx.each("read_carried", given):
        entry = entry_from(row)
        found.setdefault(entry.journal_id, []).append(entry)
    return found


async def insert_entries(tx: Tx, entries: Sequence[tuple[Entry, Holder]]) -> None:
    """Append what holders report; a run that is not theirs any more loses the fence."""
    rows = [inserted(each, holder) for each, holder in entries]
    if await tx.fenced("insert_entries", rows) != len(rows):
        raise FenceLost(frozenset(holder.task_id for _, holder in entries))


def inserted(entry: Entry, holder: Holder) -> tuple[object, ...]:
    """Return the parameters of ``insert_entries``."""
    return (
        holder.namespace,
        holder.task_id,
        holder.worker_id,
        entry.attempt,
        day_of(entry.journal_id),
        entry.pos,
        entry.at_ms,
        entry.total_bytes,
        entry.no,
        entry.journal_id,
        entry.kind.value,
        entry.key,
        entry.body,
    )


async def append_entries(tx: Tx, entries: Sequence[tuple[Entry, TaskKey]]) -> None:
    """Append what the server writes itself, to runs whose rows are locked or written."""
    rows = [
        (
            day_of(each.journal_id),
            each.pos,
            each.at_ms,
            each.total_bytes,
            each.attempt,
            each.no,
            each.journal_id,
            each.kind.value,
            each.key,
            each.body,
        )
        for each, _ in entries
    ]
    if await tx.fenced("append_entries", rows) != len(rows):
        raise FenceLost(frozenset(task_id for _, (_, task_id) in entries))


class JournalRows(RowSet[EntryKey, Entry]):
    """Entries that a batch appends, by (journal, position), and where its journals end.

    ``of_runs`` are the runs whose ends are wanted, and ``reports`` what their holders report: of
    what was reported before the places are read. An end is remembered with the row of its run, and
    counts only as long as that copy is used; a stale one meets a position that is taken. ``ends``
    move with what is appended, and ``found_ends`` stay as they were. ``carried`` is what runs take
    along that begin anew, and ``kept`` what is stored of it.
    """

    __slots__ = (
        "carried",
        "ends",
        "found_ends",
        "holders",
        "kept",
        "of_runs",
        "places",
        "remembered",
        "reports",
        "run_of",
    )

    table = Table(operator.attrgetter("journal_id", "pos"), is_locked=False)

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.of_runs: set[TaskKey] = set()
        self.reports: list[StepRef] = []
        self.carried: dict[TaskKey, Carried] = {}
        self.kept: dict[TaskKey, list[Entry]] = {}
        self.remembered: Mapping[TaskKey, JournalEnd] = {}
        self.ends: dict[TaskKey, JournalEnd] = {}
        self.found_ends: dict[TaskKey, JournalEnd] = {}
        self.places: dict[tuple[str, int], dict[int, Place]] = {}
        self.holders: dict[EntryKey, Holder] = {}
        self.run_of: dict[EntryKey, TaskKey] = {}

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Read the ends that are wanted and not remembered; the rows of their runs are here."""
        tasks = rows.tasks
        wanted = {key for key in self.of_runs if _has_journal(tasks.get(key))}
        if not wanted:
            return
        unknown = self._take_remembered(tasks, wanted)
        if unknown:
            for journal_id, end in (await read_ends(tx, unknown)).items():
                self.ends[unknown[journal_id]] = end
        self.found_ends = dict(self.ends)
        await self._load_places(tx)
        await self._load_kept(tx)

    def _take_remembered(self, tasks: TaskRows, wanted: Iterable[TaskKey]) -> dict[str, TaskKey]:
        """Take the ends that are remembered; return the journals whose ends are not."""
        unknown: dict[str, TaskKey] = {}
        for key in wanted:
            journal_id = _journal_of(tasks[key])
            end = self.remembered.get(key) if key in tasks.cached else None
            if end is None or end.journal_id != journal_id:
                unknown[journal_id] = key
                end = JournalEnd(journal_id)
            self.ends[key] = end
        return unknown

    async def _load_kept(self, tx: Tx) -> None:
        """Read what runs take along that begin anew; they are locked."""
        runs = {self.ends[key].journal_id: key for key in self.carried if key in self.ends}
        if runs:
            wanted = {journal_id: self.carried[key] for journal_id, key in runs.items()}
            for journal_id, entries in (await read_carried(tx, wanted)).items():
                self.kept[runs[journal_id]] = entries

    def carried_by(self, key: TaskKey) -> list[Entry]:
        """Return what a run takes along, with what this batch has appended."""
        if key not in self.ends or key not in self.carried:
            return []
        journal_id, wanted = self.ends[key].journal_id, self.carried[key]
        fresh = [
            entry
            for entry in self.new.values()
            if entry.journal_id == journal_id and entry.kind in _CARRIED and wanted.has(entry.pos)
        ]
        return self.kept.get(key, []) + fresh

    async def _load_places(self, tx: Tx) -> None:
        """Look up where entries stand that were reported before."""
        repeated = []
        for report in self.reports:
            end = self.ends.get(report.key)
            if end is not None and report.first_no <= end.last_no_of(report.attempt):
                given = (end.journal_id, day_of(end.journal_id))
                repeated.append((*given, report.attempt, report.first_no))
        if repeated:
            for row in await tx.each("read_own_entries", repeated):
                journal_id, attempt, no, pos, at_ms = cast(
                    "tuple[str, int, int, int, int]", tuple(row)
                )
                places = self.places.setdefault((journal_id, attempt), {})
                places[no] = Place(no, pos, at_ms)

    def append(
        self, key: TaskKey, entries: Iterable[Entry], end: JournalEnd, holder: Holder | None = None
    ) -> None:
        """Take in entries behind the end of a journal; without a holder they are our own."""
        for entry in entries:
            self.add(entry)
            place = (entry.journal_id, entry.pos)
            self.run_of[place] = key
            if holder is not None:
                self.holders[place] = holder
                places = self.places.setdefault((entry.journal_id, entry.attempt), {})
                places[entry.no] = Place(entry.no, entry.pos, entry.at_ms)
        self.ends[key] = end

    def renew(self, key: TaskKey, journal_id: str) -> None:
        """Begin the next journal of a run; what we appended to the one before goes with it.

        What its holder has reported is written before the run begins anew, and goes then.
        """
        end = self.ends.get(key)
        if end is not None:
            found = self.found_ends.get(key, JournalEnd(end.journal_id))
            for pos in range(found.pos + 1, end.pos + 1):
                place = (end.journal_id, pos)
                if place not in self.holders:
                    del self.new[place], self.run_of[place], self[place]
        self.ends[key] = self.found_ends[key] = JournalEnd(journal_id)

    def news(self) -> dict[TaskKey, JournalPage]:
        """Return what was appended by others than the holder, and what follows it."""
        found: dict[TaskKey, list[Entry]] = {}
        for place, entry in self.new.items():
            key = self.run_of[place]
            if key in found:
                found[key].append(entry)
            elif place not in self.holders:
                found[key] = [entry]
        return {
            key: JournalPage(entries[0].pos - 1, tuple(entries), entries[-1].pos)
            for key, entries in found.items()
        }

    async def save_reported(self, tx: Tx) -> None:
        """Append what holders report, before this batch takes the runs away from them.

        In the order of their runs, so that no two batches wait crosswise.
        """
        held = [(self.new[each], holder) for each, holder in self.holders.items()]
        if held:
            held.sort(key=lambda each: (each[1].namespace, each[1].task_id, each[0].pos))
            await insert_entries(tx, held)

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Append what the server writes itself, to runs whose rows are locked or written by now."""
        del rows
        if not self.new:
            return
        own = [
            (entry, self.run_of[key]) for key, entry in self.new.items() if key not in self.holders
        ]
        if own:
            await append_entries(tx, own)

    def keep_taken(self, first: RowSet[EntryKey, Entry]) -> None:
        """Keep the ends of runs whose timers have fired, which a second load does not look for."""
        assert isinstance(first, JournalRows)
        for key, end in first.found_ends.items():
            self.ends.setdefault(key, end)

    async def pages(
        self, tx: Tx, runs: Sequence[tuple[Task, int]], *, bytes_max: int
    ) -> list[JournalPage]:
        """Return a page for each run behind a position, with what this batch has appended.

        Together they are of a bounded size: who gets an empty one asks for more.
        """
        await self.learn_ends(tx, [task for task, _ in runs])
        fresh: dict[str, list[Entry]] = {}
        for entry in self.new.values():
            fresh.setdefault(entry.journal_id, []).append(entry)
        after_of: dict[str, int] = {}
        for task, after in runs:
            end = self.ends[task.namespace, task.id]
            stored_end = end.pos - len(fresh.get(end.journal_id, ()))
            if stored_end > after and bytes_max > 0:
                after_of[end.journal_id] = after
                bytes_max -= min(end.total_bytes, JOURNAL_PAGE_BYTES_MAX)
        stored = await _read_entries(tx, after_of) if after_of else {}
        found = []
        for task, after in runs:
            end = self.ends[task.namespace, task.id]
            entries = stored.get(end.journal_id, [])
            entries += _following(fresh.get(end.journal_id, ()), entries, after)
            found.append(JournalPage(after, tuple(entries), end.pos))
        return found

    async def learn_ends(self, tx: Tx, runs: Iterable[Task]) -> None:
        """Read the ends of journals that are not known in this batch."""
        unknown = {}
        for task in runs:
            key, journal_id = (task.namespace, task.id), _journal_of(task)
            if key not in self.ends or self.ends[key].journal_id != journal_id:
                unknown[journal_id] = key
                self.ends[key] = self.found_ends[key] = JournalEnd(journal_id)
        if unknown:
            for journal_id, end in (await read_ends(tx, unknown)).items():
                key = unknown[journal_id]
                self.ends[key] = self.found_ends[key] = end


def _following(fresh: Iterable[Entry], entries: Sequence[Entry], after: int) -> list[Entry]:
    """Return those new entries that follow what was read, or the position, without a gap."""
    reached = entries[-1].pos if entries else after
    found = []
    for entry in fresh:
        if entry.pos == reached + 1:
            found.append(entry)
            reached += 1
    return found


def _has_journal(task: Task | None) -> bool:
    if task is None or task.state in TERMINAL:
        return False
    return task.link is not None and task.link.journal_id is not None


def _journal_of(task: Task) -> str:
    assert task.link is not None
    assert task.link.journal_id is not None
    return task.link.journal_id
