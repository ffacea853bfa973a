"""Which position the next entries of a journal get, and which of a report were there before.

Positions are 1, 2, 3 … in the order of commits. A holder numbers its own entries too, 1, 2, 3 …
within its attempt: so a report that comes again is recognised, and one that comes too soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core.journal.entry import (
    Entry,
    EntryKind,
    JournalPage,
    NewEntry,
    OpenChild,
    OpenGroup,
    encode_body,
)
from tenure.errors import Rejection

# What the database keeps of an entry besides its key and its content.
_ENTRY_BYTES = 64
# What an open call takes besides its key and its type: its id and its numbers.
_OPEN_BYTES = 64
BEFORE_ALL_IDS: Final = "00000000-0000-0000-0000-000000000000"


class JournalEnd(msgspec.Struct, frozen=True, gc=False):
    """Where a journal ends: its last position, its size, and the last own number of an attempt."""

    journal_id: str
    pos: int = 0
    total_bytes: int = 0
    attempt: int = 0
    last_no: int = 0

    def last_no_of(self, attempt: int) -> int:
        """Return the last number under which an attempt has reported something."""
        return self.last_no if self.attempt == attempt else 0


def size_of(key: str, body: bytes | None) -> int:
    """Return what an entry counts towards the size of its journal."""
    return _ENTRY_BYTES + len(key.encode()) + len(body or b"")


def page_bytes(page: JournalPage) -> int:
    """Return how large a page is: its entries, and what is open."""
    return _entries_bytes(page) + open_bytes(page)


def _entries_bytes(page: JournalPage) -> int:
    if not page.entries:
        return 0
    if page.group_key:
        # Each has its own size: they come in any order.
        return sum([each.total_bytes for each in page.entries])
    first, last = page.entries[0], page.entries[-1]
    return last.total_bytes - first.total_bytes + size_of(first.key, first.body)


def open_bytes(page: JournalPage) -> int:
    """Return how large the open children and groups of a page are together."""
    children = sum([_open_bytes(each) for each in page.open])
    return children + sum([_open_bytes(each) for each in page.groups])


def _open_bytes(call: OpenChild | OpenGroup) -> int:
    return _OPEN_BYTES + len(call.key.encode()) + len(call.type)


def cut_open(page: JournalPage, *, bytes_max: int, behind: str = BEFORE_ALL_IDS) -> JournalPage:
    """Return a page with as many open children as have room; it begins behind an id."""
    kept: list[OpenChild] = []
    for child in page.open:
        bytes_max -= _open_bytes(child)
        if bytes_max < 0:
            return replace(page, open=tuple(kept), open_next=kept[-1].task_id if kept else behind)
        kept.append(child)
    return page


def out_of_order(end: JournalEnd, *, attempt: int, first_no: int) -> Rejection | None:
    """Refuse a report before which another one is missing."""
    expected = end.last_no_of(attempt) + 1
    if first_no <= expected:
        return None
    message = f"Entry {first_no} came before entry {expected}. Send all from {expected} on."
    return Rejection("out_of_order", message, {"expected_no": expected})


def too_early(entries: Sequence[NewEntry], now_ms: int) -> Rejection | None:
    """Refuse a timer that has not fired by the time of the store."""
    for entry in entries:
        wait_ms = entry.body.fire_at_ms - now_ms
        if entry.kind is EntryKind.TIMER and wait_ms > 0:
            message = f"The timer {entry.key} fires in {wait_ms} ms. Send it again then."
            return Rejection("too_early", message, {"retry_after_ms": wait_ms})
    return None


def append(
    end: JournalEnd, entries: Sequence[NewEntry], *, at_ms: int, attempt: int = 0
) -> tuple[list[Entry], JournalEnd]:
    """Give entries their places behind the end; without an attempt they are the server's own."""
    last_no = end.last_no_of(attempt) if attempt else 0
    pos, total_bytes = end.pos, end.total_bytes
    placed = []
    for new in entries:
        body = encode_body(new.body, at_ms)
        pos += 1
        last_no += 1 if attempt else 0
        total_bytes += size_of(new.key, body)
        placed.append(
            Entry(
                journal_id=end.journal_id,
                pos=pos,
                at_ms=at_ms,
                attempt=attempt,
                no=last_no,
                kind=new.kind,
                key=new.key,
                body=body,
                total_bytes=total_bytes,
            )
        )
    if not attempt:
        return placed, replace(end, pos=pos, total_bytes=total_bytes)
    return placed, JournalEnd(end.journal_id, pos, total_bytes, attempt, last_no)
