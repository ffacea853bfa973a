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
# What ends elsewhere.
_OUTSIDE: Final = frozenset({Kind.CHILD, Kind.GROUP})
_NOTED: Final = frozenset({Kind.NOTE, Kind.PATCH})
_SILENT: Final = frozenset({Kind.PATCH, Kind.RETRY, Kind.BEGUN, Kind.NOTE})


class Entry(msgspec.Struct, eq=False):
    """One line of a journal. ``pos`` is 0 until it is recorded; ``no`` is the reporter's own.

    ``child`` says how a child ended, also one of a group, and ``group`` how a group did.
    """

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
    child: task_pb2.ChildEnd | None = None
    group: task_pb2.GroupEnd | None = None
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


class OpenCall(msgspec.Struct, frozen=True):
    """A child or a group that the server has and that has not ended when the run is handed out.

    Of a group, the first ``spawned`` of ``total`` items are stored.
    """

    kind: Kind
    key: str
    index: int = 0
    type: str = ""
    task_id: str = ""
    total: int = 0
    spawned: int = 0
    # It stands nowhere yet.
    pos: int = 0
    line: str = ""


Recorded = Entry | OpenCall
"""What the server has of a call."""


class Made(NamedTuple):
    """What a call that the body makes is, beside its key: the type of a child, items of a group."""

    line: str
    type: str = ""
    total: int = 0


class Mismatch(NamedTuple):
    """How the code does not fit the journal: what was recorded, what came, and where."""

    problem: str
    message: str
    position: int

    @property
    def text(self) -> str:
        """All of it in one line; a call that is still open has no position."""
        where = f" at position {self.position}" if self.position else ""
        return f"{self.problem}{where}: {self.message}"


class Journal:
    """The entries of a run: delivered up to ``seen``, received beyond it, ``end`` at the server."""

    def __init__(self, *, is_strict: bool = True) -> None:
        """Begin with nothing; ``is_strict`` says whether calls may come, go and move."""
        self.seen = 0
        self.end = 0
        self.is_strict = is_strict
        self._received: dict[int, Entry] = {}
        # Calls that were recorded and that the body has not made yet; ends win over what is open.
        self._recorded: dict[str, Recorded] = {}
        self._by_place: dict[tuple[str, int], Recorded] = {}
        self._retries: dict[str, Entry] = {}
        self._notes: set[str] = set()
        self._ended: set[str] = set()

    def add(self, entry: Entry, *, is_expected: bool) -> None:
        """Take an entry; ``is_expected`` says that its call was made already."""
        pos = entry.pos
        if pos <= self.seen or pos in self._received:
            return
        self._received[pos] = entry
        self.end = max(self.end, pos)
        if entry.kind is Kind.RETRY:
            self._retries[entry.key] = entry
        elif entry.kind in _NOTED:
            self._notes.add(note_key(entry.kind, entry.key))
        elif entry.is_call:
            if entry.kind in _OUTSIDE:
                self._ended.add(entry.key)
            if not is_expected:
                self._expect(entry)

    def add_open(self, call: OpenCall) -> None:
        """Take a child or a group that has not ended, unless its end is here already."""
        if call.key not in self._ended:
            self._expect(call)

    def has_ended(self, key: str) -> bool:
        """Tell whether the end of a child or a group is here."""
        return key in self._ended

    def _expect(self, call: Recorded) -> None:
        self._recorded[call.key] = call
        self._by_place[_path(call.key), call.index] = call

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

    def meet(self, call: CallKey, kind: Kind, made: Made) -> Recorded | Mismatch | None:
        """Return what was recorded of a call, from here on met, or how it does not fit."""
        if not self._recorded:
            return None
        known = self._recorded.get(call.key)
        if self.is_strict:
            there = self._by_place.get((call.path, call.index))
            if there is not None and there.key != call.key:
                return _changed(call, there, made)
            if known is not None and known.index != call.index:
                return _moved(call, known, made)
        if known is None:
            return None
        if known.kind is not kind or not _is_same(known, made):
            return _changed(call, known, made)
        del self._recorded[call.key]
        self._by_place.pop((_path(known.key), known.index), None)
        return known

    @property
    def is_untouched(self) -> bool:
        """Whether nothing is here that a body has made; asked before the body begins.

        Signals and a cancel come from outside, whichever attempt finds them.
        """
        kinds = {entry.kind for entry in self._received.values()}
        return not self.seen and not self._recorded and kinds <= {Kind.SIGNAL, Kind.CANCEL}

    @property
    def is_met(self) -> bool:
        """Whether the body has heard of every entry and made every call that is open."""
        return not self._received and not self._recorded

    def uncalled(self) -> Recorded | None:
        """Return an open call that the body has not made; asked when every entry is delivered."""
        return next(iter(self._recorded.values()), None) if self.is_strict else None

    def last_retry(self, key: str) -> Entry | None:
        """Return what was recorded of the retries of a step."""
        return self._retries.get(key)

    def has_note(self, kind: Kind, key: str) -> bool:
        """Tell whether a note or a patch was recorded."""
        return note_key(kind, key) in self._notes


def removed(recorded: Recorded, line: str = "") -> Mismatch:
    """Say that an entry or an open call is there and its call is not; the code is at ``line``."""
    what = f" made at {recorded.line}" if recorded.line else ""
    message = f"the journal has {_shown(recorded)}{what}, the code does not call it"
    if line:
        message += f" (it is at {line})"
    return Mismatch("removed", message, recorded.pos)


def unreadable(entry: Entry, problem: object, what: str = "") -> Mismatch:
    """Say that a recorded value does not fit the type that the code wants."""
    message = f"what was recorded for {what or entry.key} does not fit the code: {problem}"
    return Mismatch("unreadable", message, entry.pos)


def note_key(kind: Kind, key: str) -> str:
    """Return how a note or a patch is remembered."""
    return f"{kind.name} {key}"


def _changed(call: CallKey, there: Recorded, made: Made) -> Mismatch:
    what = f"{call.key} with {made.total:,} items" if _is_other_total(there, made) else call.key
    message = (
        f"at {call.path}{call.index} the journal has {_shown(there)}, the code calls {what} "
        f"({made.line})"
    )
    return Mismatch("changed", message, there.pos)


def _moved(call: CallKey, known: Recorded, made: Made) -> Mismatch:
    message = (
        f"the journal has {call.key} as call {known.index} of its branch, the code makes "
        f"it as call {call.index} ({made.line})"
    )
    return Mismatch("moved", message, known.pos)


def _shown(recorded: Recorded) -> str:
    """Return a recorded call as messages name it: with its kind and, of a group, its size."""
    kind = recorded.kind.name.lower()
    if isinstance(recorded, OpenCall):
        kind = f"open {kind}"
    total = _total(recorded)
    return f"{recorded.key} ({kind}{f' of {total:,} items' if total else ''})"


def _is_same(known: Recorded, made: Made) -> bool:
    """Tell whether the type of a child and the size of a group are as they were."""
    type = known.type if isinstance(known, OpenCall) else known.child.type if known.child else ""
    return (not type or not made.type or type == made.type) and not _is_other_total(known, made)


def _is_other_total(known: Recorded, made: Made) -> bool:
    total = _total(known)
    return bool(total) and total != made.total


def _total(recorded: Recorded) -> int:
    if isinstance(recorded, OpenCall):
        return recorded.total
    return 0 if recorded.group is None else recorded.group.total


def _path(key: str) -> str:
    return key[: key.rfind("/") + 1]
