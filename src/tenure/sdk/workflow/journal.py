"""What was recorded of a run, in its order, and whether the code still fits it."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

import msgspec

from tenure.sdk.payload import BYTES, Payload
from tenure.sdk.workflow.scope import CallKey
from tenure.v1 import task_pb2


class Kind(enum.IntEnum):
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


# Timers of sleeps are calls too; those of timeouts are not.
_CALLS: Final = frozenset({Kind.STEP, Kind.CHILD, Kind.GROUP})
_SILENT: Final = frozenset({Kind.PATCH, Kind.RETRY, Kind.BEGUN, Kind.NOTE})


class Entry(msgspec.Struct, eq=False):
    """One line of a journal. ``pos`` is 0 until it is recorded; ``no`` is the reporter's own."""

    kind: Kind
    key: str
    index: int = 0
    output: bytes | None = None
    encoding: str = ""
    error: task_pb2.TaskError | None = None
    attempts: int = 0
    started_at_ms: int = 0
    took_ms: int = 0
    fire_at_ms: int = 0
    next_at_ms: int = 0
    line: str = ""
    pos: int = 0
    at_ms: int = 0
    attempt: int = 0
    no: int = 0

    @property
    def payload(self) -> Payload:
        """The recorded value; a signal that was sent without one has null."""
        is_missing = not self.output and self.encoding != BYTES
        return Payload(self.encoding, b"null" if is_missing else self.output or b"")

    @property
    def is_call(self) -> bool:
        """Whether a body must have called for it."""
        return self.kind in _CALLS or (self.kind is Kind.TIMER and "@" not in self.key)

    @property
    def is_silent(self) -> bool:
        """Whether a body hears nothing of it."""
        return self.kind in _SILENT


class Mismatch(NamedTuple):
    """How the code does not fit the journal: what was recorded, what came, and where."""

    problem: str
    message: str
    position: int


class Journal:
    """The entries of a run: delivered up to ``seen``, received beyond it, ``end`` at the server."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.seen = 0
        self.end = 0
        self._received: dict[int, Entry] = {}
        # Calls that were recorded and that the body has not made yet.
        self._recorded: dict[str, Entry] = {}
        self._by_place: dict[tuple[str, int], Entry] = {}
        self._retries: dict[str, Entry] = {}
        self._notes: set[str] = set()

    def add(self, entry: Entry, *, is_expected: bool) -> None:
        """Take an entry; ``is_expected`` says that its call was made already."""
        pos = entry.pos
        if pos <= self.seen or pos in self._received:
            return
        self._received[pos] = entry
        self.end = max(self.end, pos)
        if entry.kind is Kind.RETRY:
            self._retries[entry.key] = entry
        elif entry.kind in (Kind.NOTE, Kind.PATCH):
            self._notes.add(entry.key)
        elif entry.is_call and not is_expected:
            self._recorded[entry.key] = entry
            self._by_place[_path(entry.key), entry.index] = entry

    def take_next(self) -> Entry | None:
        """Return the next entry in order, if it is here."""
        entry = self._received.pop(self.seen + 1, None)
        if entry is not None:
            self.seen += 1
        return entry

    @property
    def is_complete(self) -> bool:
        """Whether every entry that the server has is here."""
        return self.seen + len(self._received) >= self.end

    @property
    def is_delivered(self) -> bool:
        """Whether the body has heard of every entry that is here."""
        return not self._received

    @property
    def received_to(self) -> int:
        """The last position up to which nothing is missing."""
        pos = self.seen
        while pos + 1 in self._received:
            pos += 1
        return pos

    def check(self, call: CallKey, kind: Kind, line: str) -> Mismatch | None:
        """Say how a call does not fit what was recorded; one that fits is met from here on."""
        if not self._recorded:
            return None
        there = self._by_place.get((call.path, call.index))
        if there is not None and there.key != call.key:
            return _changed(call, there, line)
        known = self._recorded.get(call.key)
        if known is None:
            return None
        if known.index != call.index:
            message = (
                f"the journal has {call.key} as call {known.index} of its branch, the code makes "
                f"it as call {call.index} ({line})"
            )
            return Mismatch("moved", message, known.pos)
        if known.kind is not kind:
            return _changed(call, known, line)
        del self._recorded[call.key]
        del self._by_place[call.path, call.index]
        return None

    def last_retry(self, key: str) -> Entry | None:
        """Return what was recorded of the retries of a step."""
        return self._retries.get(key)

    def has_note(self, key: str) -> bool:
        """Tell whether a note was recorded."""
        return key in self._notes


def removed(entry: Entry) -> Mismatch:
    """Say that an entry is there and its call is not."""
    what = f" made at {entry.line}" if entry.line else ""
    message = f"the journal has {entry.key}{what}, the code does not call it"
    return Mismatch("removed", message, entry.pos)


def unreadable(entry: Entry, problem: object) -> Mismatch:
    """Say that a recorded value does not fit the type that the code wants."""
    message = f"what was recorded for {entry.key} does not fit the code: {problem}"
    return Mismatch("unreadable", message, entry.pos)


def _changed(call: CallKey, there: Entry, line: str) -> Mismatch:
    message = (
        f"at {call.path}{call.index} the journal has {there.key} ({there.kind.name.lower()}), "
        f"the code calls {call.key} ({line})"
    )
    return Mismatch("changed", message, there.pos)


def _path(key: str) -> str:
    return key[: key.rfind("/") + 1]
