"""Positions have no gap, own numbers recognise what comes again, and journals have a limit."""

from __future__ import annotations

import pytest

from tenure.core.journal import numbering, room
from tenure.core.journal.entry import (
    NO_BODY,
    Entry,
    EntryBody,
    EntryKind,
    JournalPage,
    NewEntry,
    day_of,
    encode_body,
)
from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import (
    DAY_MS,
    JOURNAL_BYTES_MAX,
    JOURNAL_BYTES_WARNING,
    JOURNAL_ENTRIES_MAX,
    JOURNAL_ENTRIES_WARNING,
)

JOURNAL = "0190a000-0000-7000-8000-000000000001"
EMPTY = JournalEnd(JOURNAL)
T0 = 1_800_000_000_000
STEP = NewEntry(EntryKind.STEP, "charge", EntryBody(output=b"12", attempts=1))


def test_positions_follow_each_other_without_a_gap_whoever_appends() -> None:
    first, end = numbering.append(EMPTY, [STEP, STEP], at_ms=5, attempt=1)
    signal = NewEntry(EntryKind.SIGNAL, "approve")
    second, end = numbering.append(end, [signal], at_ms=6)
    third, end = numbering.append(end, [STEP], at_ms=7, attempt=1)
    entries = first + second + third
    assert [(each.pos, each.attempt, each.no) for each in entries] == [
        (1, 1, 1),
        (2, 1, 2),
        (3, 0, 0),
        (4, 1, 3),
    ]
    assert [each.at_ms for each in entries] == [5, 5, 6, 7]
    assert (end.pos, end.last_no_of(1)) == (4, 3)


def test_each_attempt_counts_its_own_entries_from_one() -> None:
    _, end = numbering.append(EMPTY, [STEP, STEP], at_ms=5, attempt=1)
    (entry,), end = numbering.append(end, [STEP], at_ms=5, attempt=2)
    assert (entry.pos, entry.no) == (3, 1)
    assert (end.last_no_of(1), end.last_no_of(2)) == (0, 1)


def test_a_report_before_which_one_is_missing_names_the_number_that_is_expected() -> None:
    _, end = numbering.append(EMPTY, [STEP], at_ms=5, attempt=3)
    assert numbering.out_of_order(end, attempt=3, first_no=1) is None
    assert numbering.out_of_order(end, attempt=3, first_no=2) is None
    refused = numbering.out_of_order(end, attempt=3, first_no=3)
    assert refused is not None
    assert (refused.code, refused.fields) == ("out_of_order", {"expected_no": 2})
    refused = numbering.out_of_order(end, attempt=4, first_no=2)
    assert refused is not None
    assert refused.fields == {"expected_no": 1}


def test_a_timer_that_has_not_fired_is_too_early() -> None:
    timer = NewEntry(EntryKind.TIMER, "sleep", EntryBody(fire_at_ms=1_500))
    step = NewEntry(EntryKind.STEP, "charge", EntryBody(fire_at_ms=9_999))
    refused = numbering.too_early([step, timer], 1_200)
    assert refused is not None
    assert (refused.code, refused.fields) == ("too_early", {"retry_after_ms": 300})
    assert numbering.too_early([step, timer], 1_500) is None


def test_an_entry_gives_back_what_was_put_in() -> None:
    (entry,), _ = numbering.append(EMPTY, [STEP], at_ms=5, attempt=1)
    assert entry.content == STEP.body
    (bare,), _ = numbering.append(EMPTY, [NewEntry(EntryKind.PATCH, "v2")], at_ms=5, attempt=1)
    assert (bare.body, bare.content) == (None, NO_BODY)
    assert encode_body(EntryBody(), T0) is None


def test_every_entry_knows_how_large_its_journal_is() -> None:
    entries, end = numbering.append(EMPTY, [STEP, STEP], at_ms=5, attempt=1)
    size = numbering.size_of("charge", entries[0].body)
    assert [each.total_bytes for each in entries] == [size, 2 * size]
    assert end.total_bytes == 2 * size


def test_a_journal_knows_the_day_on_which_it_was_begun() -> None:
    at_ms = 20_000 * DAY_MS + 7
    text = f"{at_ms:012x}"
    assert day_of(f"{text[:8]}-{text[8:]}-7000-8000-000000000001") == 20_000


@pytest.mark.parametrize(
    ("pos", "size", "is_large", "is_full", "is_flooded"),
    [
        (JOURNAL_ENTRIES_WARNING - 1, 0, False, False, False),
        (JOURNAL_ENTRIES_WARNING, 0, True, False, False),
        (1, JOURNAL_BYTES_WARNING, True, False, False),
        (JOURNAL_ENTRIES_MAX, JOURNAL_BYTES_MAX, True, False, False),
        (JOURNAL_ENTRIES_MAX + 1, 0, True, True, False),
        (1, JOURNAL_BYTES_MAX + 1, True, True, False),
        (2 * JOURNAL_ENTRIES_MAX + 1, 0, True, True, True),
        (1, 2 * JOURNAL_BYTES_MAX + 1, True, True, True),
    ],
)
def test_a_full_journal_refuses_its_holder_and_signals_at_twice_that(
    pos: int, size: int, *, is_large: bool, is_full: bool, is_flooded: bool
) -> None:
    end = JournalEnd(JOURNAL, pos, size)
    assert room.is_large(end) is is_large
    full, flooded = room.full(end), room.flooded(end)
    assert (full.code if full else None) == ("journal_full" if is_full else None)
    assert (flooded.code if flooded else None) == ("rate_limited" if is_flooded else None)


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 1, 0), (1, 0, 1)])
def test_no_impossible_entry_can_exist(numbers: tuple[int, int, int]) -> None:
    pos, attempt, no = numbers
    with pytest.raises(AssertionError):
        Entry(JOURNAL, pos, 5, attempt, no, EntryKind.STEP, "charge", None, 1)


def test_a_page_is_as_large_as_its_entries() -> None:
    entries, end = numbering.append(EMPTY, [STEP] * 3, at_ms=5, attempt=1)
    size = numbering.size_of(STEP.key, encode_body(STEP.body, 5))
    assert numbering.page_bytes(JournalPage(0, tuple(entries), 3)) == end.total_bytes == 3 * size
    assert numbering.page_bytes(JournalPage(1, tuple(entries[1:]), 3)) == 2 * size
    assert numbering.page_bytes(JournalPage(3, (), 3)) == 0


@pytest.mark.parametrize("before_ms", [-5, 0, 1, 65_535, 65_536, T0])
def test_the_start_of_a_step_is_kept_whenever_it_was(before_ms: int) -> None:
    step = NewEntry(EntryKind.STEP, "charge", EntryBody(started_at_ms=T0 - before_ms, took_ms=1))
    ((entry,), _) = numbering.append(EMPTY, [step], at_ms=T0, attempt=1)
    assert entry.content == step.body


def test_an_output_of_the_usual_kind_takes_few_bytes() -> None:
    body = EntryBody(output=b"1", attempts=1, started_at_ms=T0 - 20, site="orders.py:40")
    stored = encode_body(body, T0)
    assert stored is not None
    assert len(stored) == 29
