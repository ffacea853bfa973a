"""The journal: what is appended stays in its order, and the insert fences itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tenure.core.journal import numbering
from tenure.core.journal.entry import Entry, EntryBody, EntryKind, JournalPage, NewEntry, day_of
from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import JOURNAL_PAGE_BYTES_MAX, JOURNAL_PAGE_ENTRIES_MAX
from tenure.core.run.record import RunLink
from tenure.core.task.record import Spec, Task, TaskKind
from tenure.store.failure import FenceLost, KeyTaken
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.table import journal as journal_table
from tenure.store.table import retention
from tenure.store.table import task as task_table
from tenure.store.table.journal import Holder, JournalRows, StepRef
from tenure.store.table.lock_order import RowSets
from tenure.store.transaction import LaneName, Store, Tx
from tests.store.rows import (
    DAY_MS,
    NAMESPACE,
    NOW,
    finished_from,
    held,
    history,
    insert,
    live,
    pending,
    task_id,
    worker_id,
)

RUN_SPEC: Final = Spec(kind=TaskKind.WORKFLOW)
STEP: Final = NewEntry(EntryKind.STEP, "2/żółw#3", EntryBody(index=4, output=b"\x00\xff"))
SIGNAL: Final = NewEntry(EntryKind.SIGNAL, "approve")
KEY: Final = (NAMESPACE, task_id(1))
HOLDER: Final = Holder(NAMESPACE, task_id(1), worker_id(1))
TODAY: Final = NOW // DAY_MS


def journal_id(number: int, day: int = TODAY) -> str:
    """Return the id of a journal that was begun on a day."""
    at = f"{day * DAY_MS + 7:012x}"
    return f"{at[:8]}-{at[8:]}-7000-8000-{number:012x}"


JOURNAL: Final = journal_id(1)


def run(number: int = 1, day: int = TODAY, **changes: Any) -> Task:
    """Return a run that a worker holds."""
    link = RunLink(journal_id=journal_id(number, day))
    return held(number, **{"spec": RUN_SPEC, "link": link, **changes})


async def record(
    store: Store, *new: NewEntry, end: JournalEnd | None = None, attempt: int = 1
) -> JournalEnd:
    """Append what the holder of the run reports."""
    entries, after = numbering.append(end or JournalEnd(JOURNAL), new, at_ms=NOW, attempt=attempt)
    given = [(each, HOLDER) for each in entries]
    await store.transaction(lambda tx: journal_table.insert_entries(tx, given))
    return after


async def append(store: Store, *new: NewEntry, end: JournalEnd | None = None) -> JournalEnd:
    """Append what the server writes itself."""
    entries, after = numbering.append(end or JournalEnd(JOURNAL), new, at_ms=NOW)
    given = [(each, KEY) for each in entries]
    await store.transaction(lambda tx: journal_table.append_entries(tx, given))
    return after


async def page(store: Store, after: int = 0, journal: str = JOURNAL) -> JournalPage:
    return await store.transaction(lambda tx: journal_table.read_page(tx, journal, after=after))


async def kinds(store: Store, journal: str = JOURNAL) -> list[int]:
    return [each.kind for each in (await page(store, journal=journal)).entries]


# The columns of a run.


async def test_a_run_and_a_child_come_back_as_they_were_stored(store: Store) -> None:
    child = RunLink(parent_id=task_id(1), origin=b"\x00\xff")
    tasks = [
        run(link=RunLink(journal_id=JOURNAL, external_id="żółw-42")),
        pending(2, link=child),
        pending(3),
    ]
    await insert(store, *tasks)
    assert await live(store, 1, 2, 3) == tasks
    ended = finished_from(tasks[0])
    await store.transaction(lambda tx: task_table.finish_tasks(tx, [ended]))
    (stored,) = await history(store, 1)
    assert stored.link == tasks[0].link


async def test_a_run_that_ends_in_the_batch_that_starts_it_keeps_its_columns(store: Store) -> None:
    ended = finished_from(run())
    await store.transaction(lambda tx: task_table.insert_finished(tx, [ended]))
    (stored,) = await history(store, 1)
    assert stored.link == ended.link


async def test_two_live_runs_cannot_have_one_id_of_their_user(store: Store) -> None:
    link = RunLink(journal_id=JOURNAL, external_id="order-42")
    await insert(store, run(link=link))
    other = run(2, link=replace(link, journal_id=journal_id(2)))
    with pytest.raises(KeyTaken):
        await insert(store, other)
    ended = finished_from(run(link=link))
    await store.transaction(lambda tx: task_table.finish_tasks(tx, [ended]))
    await insert(store, other)


async def test_a_run_that_begins_anew_has_another_journal(store: Store) -> None:
    await insert(store, run())
    await record(store, STEP)
    renewed = run(link=RunLink(journal_id=journal_id(9)))

    async def save(tx: Tx) -> None:
        rows = RowSets()
        rows.tasks.wanted.add(KEY)
        await rows.load(tx)
        rows.tasks.put(renewed)
        await rows.save(tx)

    await store.transaction(save)
    (stored,) = await live(store, 1)
    assert (stored.link, stored.version) == (renewed.link, 1)


# Appending.


async def test_entries_come_back_in_their_order(store: Store) -> None:
    await insert(store, run())
    end = await record(store, STEP, STEP)
    end = await append(store, SIGNAL, end=end)
    end = await record(store, STEP, end=end)
    found = await page(store)
    assert [each.pos for each in found.entries] == [1, 2, 3, 4]
    assert [(each.attempt, each.no) for each in found.entries] == [(1, 1), (1, 2), (0, 0), (1, 3)]
    assert (found.entries[0].content, found.entries[0].key) == (STEP.body, STEP.key)
    assert (found.entries[2].kind, found.entries[2].body) == (EntryKind.SIGNAL, None)
    assert found.entries[-1].total_bytes == end.total_bytes
    assert found.end == 4


async def test_many_entries_of_many_runs_are_one_statement(store: Store) -> None:
    await insert(store, *[run(number) for number in range(1, 41)])
    given: list[tuple[Entry, Holder]] = []
    for number in range(1, 41):
        entries, _ = numbering.append(
            JournalEnd(journal_id(number)), [STEP, STEP], at_ms=NOW, attempt=1
        )
        given += [(each, Holder(NAMESPACE, task_id(number), worker_id(1))) for each in entries]
    await store.transaction(lambda tx: journal_table.insert_entries(tx, given))
    for number in range(1, 41):
        assert len((await page(store, journal=journal_id(number))).entries) == 2


@pytest.mark.parametrize(
    "changes",
    [{"attempt": 2}, {"worker_id": worker_id(2)}, {"id": task_id(2)}],
    ids=["attempt", "worker", "task"],
)
async def test_who_does_not_hold_the_run_writes_nothing(
    store: Store, changes: dict[str, Any]
) -> None:
    await insert(store, replace(run(), **changes))
    with pytest.raises(FenceLost) as lost:
        await record(store, STEP)
    assert lost.value.ids == {task_id(1)}
    assert await kinds(store) == []


async def test_a_position_that_is_taken_is_not_written_twice(store: Store) -> None:
    await insert(store, run())
    await append(store, SIGNAL)
    with pytest.raises(FenceLost):
        await record(store, STEP)
    with pytest.raises(FenceLost):
        await append(store, STEP)
    assert await kinds(store) == [EntryKind.SIGNAL]


async def test_one_lost_fence_of_a_batch_writes_nothing_of_it(store: Store) -> None:
    await insert(store, run(1), run(2, attempt=2))
    given = []
    for number in (1, 2):
        (entry,), _ = numbering.append(JournalEnd(journal_id(number)), [STEP], at_ms=NOW, attempt=1)
        given.append((entry, Holder(NAMESPACE, task_id(number), worker_id(1))))
    with pytest.raises(FenceLost):
        await store.transaction(lambda tx: journal_table.insert_entries(tx, given))
    assert await kinds(store) == []


async def test_a_lone_entry_is_a_transaction_by_itself(store: Store) -> None:
    await insert(store, run())
    (entry,), _ = numbering.append(JournalEnd(JOURNAL), [STEP], at_ms=NOW, attempt=1)
    row = journal_table.inserted(entry, HOLDER)
    assert await store.write("insert_entries", row)
    assert not await store.write("insert_entries", row)
    assert await kinds(store) == [EntryKind.STEP]


# Reading.


async def test_a_page_is_cut_by_entries(store: Store) -> None:
    await insert(store, run())
    count = JOURNAL_PAGE_ENTRIES_MAX + 5
    await record(store, *[NewEntry(EntryKind.PATCH, "x")] * count)
    first = await page(store)
    assert (len(first.entries), first.end) == (JOURNAL_PAGE_ENTRIES_MAX, count)
    rest = await page(store, JOURNAL_PAGE_ENTRIES_MAX)
    assert [each.pos for each in rest.entries] == list(range(count - 4, count + 1))
    assert (await page(store, count)).entries == ()


async def test_a_page_is_cut_by_bytes_and_has_one_entry_at_least(store: Store) -> None:
    await insert(store, run())
    large = NewEntry(EntryKind.STEP, "x", EntryBody(output=bytes(JOURNAL_PAGE_BYTES_MAX)))
    small = NewEntry(EntryKind.STEP, "x", EntryBody(output=bytes(1_000)))
    await record(store, small, large, small, small, large)
    seen = []
    after = 0
    while after < 5:
        found = await page(store, after)
        seen.append([each.pos for each in found.entries])
        after = found.entries[-1].pos
    assert seen == [[1], [2], [3, 4], [5]]


async def ends_of(store: Store, *journals: str) -> dict[str, JournalEnd]:
    return await store.transaction(lambda tx: journal_table.read_ends(tx, journals))


async def test_the_end_of_a_journal_tells_who_reported_last(store: Store) -> None:
    await insert(store, run())
    end = await record(store, STEP, STEP)
    end = await append(store, SIGNAL, SIGNAL, end=end)
    found = await ends_of(store, JOURNAL, journal_id(2))
    assert found == {JOURNAL: end}
    assert (found[JOURNAL].pos, found[JOURNAL].last_no_of(1)) == (4, 2)


async def test_a_journal_that_only_the_server_wrote_has_no_number(store: Store) -> None:
    await insert(store, run())
    end = await append(store, SIGNAL)
    assert (await ends_of(store, JOURNAL))[JOURNAL] == end


async def load(store: Store, *refs: StepRef, **given: Any) -> JournalRows:
    async def body(tx: Tx) -> JournalRows:
        rows = RowSets()
        rows.tasks.wanted.add(KEY)
        rows.tasks.cache = given.get("cache", {})
        rows.journals.of_runs.add(KEY)
        rows.journals.reports.extend(refs)
        rows.journals.remembered = given.get("remembered", {})
        await rows.load(tx)
        return rows.journals

    return await store.transaction(body)


async def test_what_was_reported_before_is_found_by_its_own_number(store: Store) -> None:
    await insert(store, run())
    end = await record(store, STEP, STEP)
    end = await append(store, SIGNAL, end=end)
    await record(store, STEP, end=end)
    rows = await load(store, StepRef(KEY, 1, 2))
    places = rows.places[JOURNAL, 1]
    assert {no: each.pos for no, each in places.items()} == {2: 2, 3: 4}
    assert (await load(store, StepRef(KEY, 1, 4))).places == {}


async def test_a_remembered_end_counts_only_with_the_copy_of_its_row(store: Store) -> None:
    await insert(store, run())
    stored = await record(store, STEP)
    stale = JournalEnd(JOURNAL)
    assert (await load(store, remembered={KEY: stale})).ends[KEY] == stored
    kept = {"cache": {KEY: run()}, "remembered": {KEY: stale}}
    assert (await load(store, **kept)).ends[KEY] == stale
    other = {"cache": {KEY: run()}, "remembered": {KEY: JournalEnd(journal_id(9), 7)}}
    assert (await load(store, **other)).ends[KEY] == stored


async def test_an_activity_and_a_run_that_is_gone_have_no_end(store: Store) -> None:
    assert (await load(store)).ends == {}
    await insert(store, held(1))
    assert (await load(store)).ends == {}


async def test_a_page_has_what_its_batch_has_appended(store: Store) -> None:
    await insert(store, run())
    stored = await record(store, STEP, STEP)

    async def body(tx: Tx) -> list[JournalPage]:
        rows = RowSets()
        rows.tasks.wanted.add(KEY)
        rows.journals.of_runs.add(KEY)
        await rows.load(tx)
        entries, end = numbering.append(rows.journals.ends[KEY], [SIGNAL], at_ms=NOW)
        rows.journals.append(KEY, entries, end)
        runs = [(run(), after) for after in (0, 2, 3)]
        return [
            *[(await rows.journals.pages(tx, [each], bytes_max=1))[0] for each in runs],
            *await rows.journals.pages(tx, [runs[0]], bytes_max=0),
        ]

    whole, tail, nothing, unread = await store.transaction(body)
    assert (unread.entries, unread.end) == ((), 3)
    assert [each.pos for each in whole.entries] == [1, 2, 3]
    assert [each.pos for each in tail.entries] == [3]
    assert (nothing.entries, nothing.end) == ((), stored.pos + 1)


# Retention.


async def keep(store: Store, first: int) -> int:
    """Forget what is older than a day; return how many entries were deleted one by one."""

    async def body(tx: Tx) -> int:
        await retention.keep_days(tx, first=first, today=first, last=first)
        before_ms = first * DAY_MS
        deleted = await retention.delete_journals(tx, before_ms=before_ms, amount=3)
        await retention.delete_history(tx, before_ms=before_ms, amount=3)
        return deleted

    return await store.transaction(body, LaneName.SERVICE)


async def add_ended(store: Store, number: int, day: int, entries: int) -> None:
    """Store a run that began and ended on a day, with its journal."""
    await store.transaction(lambda tx: tx.one("ensure_days", day), LaneName.SERVICE)
    ended = finished_from(run(number, day), finished_at_ms=day * DAY_MS + 9)
    await store.transaction(lambda tx: task_table.insert_finished(tx, [ended]))
    placed, _ = numbering.append(JournalEnd(journal_id(number, day)), [SIGNAL] * entries, at_ms=NOW)
    given = [(each, (NAMESPACE, task_id(number))) for each in placed]
    await store.transaction(lambda tx: journal_table.append_entries(tx, given))


async def test_a_journal_goes_with_its_run(store: Store) -> None:
    await add_ended(store, 1, TODAY - 9, 7)
    await add_ended(store, 2, TODAY, 2)
    for _ in range(4):
        await keep(store, TODAY - 7)
    assert await history(store, 1) == []
    assert await kinds(store, journal_id(1, TODAY - 9)) == []
    assert len(await kinds(store, journal_id(2))) == 2


async def test_entries_are_deleted_in_batches_before_their_run(sqlite_store: SqliteStore) -> None:
    await add_ended(sqlite_store, 1, TODAY - 9, 7)
    assert [await keep(sqlite_store, TODAY - 7) for _ in range(4)] == [3, 3, 1, 0]
    assert await history(sqlite_store, 1) == []


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_day_stays_as_long_as_a_run_needs_it(store: Store, *, is_live: bool) -> None:
    day = TODAY - 30
    await add_ended(store, 2, day, 2)
    if is_live:
        await insert(store, run(1, day))
    else:
        late = finished_from(run(1, day), finished_at_ms=NOW)
        await store.transaction(lambda tx: task_table.insert_finished(tx, [late]))
    placed, _ = numbering.append(JournalEnd(journal_id(1, day)), [SIGNAL], at_ms=NOW)
    given: Sequence[tuple[Entry, tuple[str, str]]] = [(each, KEY) for each in placed]
    await store.transaction(lambda tx: journal_table.append_entries(tx, given))
    for _ in range(3):
        await keep(store, TODAY - 7)
    assert await kinds(store, journal_id(1, day)) == [EntryKind.SIGNAL]
    assert await history(store, 2) == []


async def test_what_fell_into_no_day_is_deleted_one_by_one(postgres_store: PostgresStore) -> None:
    day = TODAY - 30
    placed, _ = numbering.append(JournalEnd(journal_id(1, day)), [SIGNAL] * 4, at_ms=NOW)
    given = [(each, KEY) for each in placed]
    await postgres_store.transaction(lambda tx: journal_table.append_entries(tx, given))
    assert [await keep(postgres_store, TODAY - 7) for _ in range(3)] == [3, 1, 0]


def test_the_day_of_an_entry_is_that_of_its_journal() -> None:
    assert day_of(journal_id(1, 20_000)) == 20_000
