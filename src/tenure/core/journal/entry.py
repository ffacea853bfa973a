"""One entry of a journal: its kind, its content, and the record that is stored."""

from __future__ import annotations

import enum
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core.limits import DAY_MS
from tenure.core.task.retry import ErrorInfo


class EntryKind(enum.IntEnum):
    """What an entry records."""

    STEP = 1
    CHILD = 2
    TIMER = 3
    SIGNAL = 4
    CANCEL = 5
    GROUP = 6
    PATCH = 7
    RETRY = 8
    BEGUN = 9
    NOTE = 10

    # Enum's own hash is a Python function.
    __hash__ = int.__hash__


BY_HOLDER: Final = frozenset(
    {
        EntryKind.STEP,
        EntryKind.TIMER,
        EntryKind.PATCH,
        EntryKind.RETRY,
        EntryKind.BEGUN,
        EntryKind.NOTE,
    }
)
"""What the worker that holds a run may report; the server writes the others itself."""


JSON: Final = "json"
"""The encoding of an output for which none is named."""


class EntryBody(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={
        "index": "i",
        "output": "o",
        "encoding": "e",
        "error": "x",
        "attempts": "a",
        "started_at_ms": "b",
        "took_ms": "t",
        "site": "s",
        "fire_at_ms": "f",
        "next_at_ms": "n",
        "signal_id": "si",
        "sender": "sn",
        "begun_before_ms": "d",
        "task_id": "ti",
        "type": "ty",
        "state": "st",
        "reason": "r",
        "group_id": "g",
        "total": "gt",
        "succeeded": "gs",
        "failed": "gf",
        "cancelled": "gc",
    },
):
    """The content of an entry; which parts are set depends on its kind. Short names: it is stored.

    ``output`` is also the payload of a signal and the text of a note, and ``error`` of a cancel its
    reason. Only stored: ``begun_before_ms``, from the start to the recording, in place of a start
    that was shortly before. ``task_id`` to ``reason`` are of a child, ``group_id`` to ``cancelled``
    of a group. A new part gets a name of its own; readers pass over what they do not
    know.
    """

    index: int = 0
    output: bytes | None = None
    encoding: str = JSON
    error: ErrorInfo | None = None
    attempts: int = 0
    started_at_ms: int = 0
    took_ms: int = 0
    site: str = ""
    fire_at_ms: int = 0
    next_at_ms: int = 0
    signal_id: str = ""
    sender: str = ""
    begun_before_ms: int = 0
    task_id: str = ""
    type: str = ""
    state: str = ""
    reason: str = ""
    group_id: str = ""
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


NO_BODY: Final = EntryBody()
# What takes two bytes.
_BEFORE_MS_MAX: Final = 65_535
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EntryBody).decode


class NewEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry that has no place in its journal yet."""

    kind: EntryKind
    key: str
    body: EntryBody = NO_BODY


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry as it is stored.

    ``attempt`` is who reported it, and ``no`` the reporter's own number; both are 0 of what the
    server wrote. ``total_bytes`` is how large the journal is with this entry.
    """

    journal_id: str
    pos: int
    at_ms: int
    attempt: int
    no: int
    kind: EntryKind
    key: str
    body: bytes | None
    total_bytes: int

    def __post_init__(self) -> None:
        """Assert what every entry satisfies."""
        assert self.pos >= 1
        assert (self.attempt == 0) == (self.no == 0)

    @property
    def content(self) -> EntryBody:
        """Return what the entry holds."""
        if self.body is None:
            return NO_BODY
        body = _decode(self.body)
        if not body.begun_before_ms:
            return body
        return replace(body, started_at_ms=self.at_ms - body.begun_before_ms, begun_before_ms=0)


class OpenChild(msgspec.Struct, frozen=True, gc=False):
    """A live child of a run, as its holder needs it to find the call that made it."""

    task_id: str
    key: str
    index: int
    type: str
    is_run: bool


class OpenGroup(msgspec.Struct, frozen=True, gc=False):
    """A group of a run that has not ended; items 0 to ``spawned`` - 1 are stored."""

    group_id: str
    key: str
    index: int
    type: str
    total: int
    spawned: int
    open_count: int
    failed: int


class JournalPage(msgspec.Struct, frozen=True, gc=False):
    """Entries of a journal in their order, all that follow ``after``; it goes on up to ``end``.

    With the start of a journal come the ``open`` children and ``groups`` of its run; if there are
    more children, ``open_next`` is behind which id. A page of the results of a group has its
    ``group_key``: positions are items + 1, and ``end`` is their number.
    """

    after: int
    entries: tuple[Entry, ...]
    end: int
    open: tuple[OpenChild, ...] = ()
    open_next: str = ""
    groups: tuple[OpenGroup, ...] = ()
    group_key: str = ""


def encode_body(body: EntryBody, at_ms: int) -> bytes | None:
    """Return the stored form of what is recorded now; nothing for what has no parts."""
    if body is NO_BODY or body == NO_BODY:
        return None
    before_ms = at_ms - body.started_at_ms
    if 0 < before_ms <= _BEFORE_MS_MAX:
        body = replace(body, started_at_ms=0, begun_before_ms=before_ms)
    return _encode(body)


def day_of(journal_id: str) -> int:
    """Return the day on which a journal was begun: its id, a UUIDv7, starts with the instant."""
    return int(journal_id[:8] + journal_id[9:13], 16) // DAY_MS
