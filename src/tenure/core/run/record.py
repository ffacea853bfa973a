"""What is stored of a run beside what every task has."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tenure.core.journal.entry import JournalPage
from tenure.core.task.retry import ErrorInfo


class ClosePolicy(enum.StrEnum):
    """What happens to a child when its run ends."""

    CANCEL = "cancel"
    TERMINATE = "terminate"
    ABANDON = "abandon"


class Origin(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    kw_only=True,
    rename={
        "run_id": "r",
        "journal_id": "j",
        "key": "k",
        "index": "i",
        "group_id": "g",
        "item": "n",
        "close_policy": "c",
        "root_run_id": "t",
        "depth": "d",
        "step_key": "s",
        "first_run_id": "f",
    },
):
    """What a task knows of its place in runs. Short names: it is stored.

    ``run_id`` and ``journal_id`` are those of the run that made it, by the call ``key``; of an item
    of a group they are those of the group's run. ``depth`` counts the runs above it. ``step_key``
    is the idempotency key of a queued step. ``first_run_id`` is, of a run that was made by a retry,
    the first one of its line.
    """

    run_id: str = ""
    journal_id: str = ""
    key: str = ""
    index: int = 0
    group_id: str = ""
    item: int = 0
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    root_run_id: str = ""
    depth: int = 0
    step_key: str = ""
    first_run_id: str = ""


NO_ORIGIN: Final = Origin()
_encode_origin = msgspec.msgpack.Encoder().encode
_decode_origin = msgspec.msgpack.Decoder(Origin).decode


def encode_origin(origin: Origin) -> bytes:
    """Return the stored form."""
    return _encode_origin(origin)


class RunLink(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a task belongs to runs: which one made it and, if it is one itself, its journal.

    ``parent_id`` is the run or, of an item, the group that made it. ``origin`` is what a child
    knows of its place in its parent; no statement looks inside. ``page`` is not stored: it is what
    whoever gets the run by a hand-out gets of its journal.
    """

    journal_id: str | None = None
    parent_id: str | None = None
    external_id: str | None = None
    origin: bytes | None = None
    page: JournalPage | None = None

    @property
    def place(self) -> Origin:
        """Return what the task knows of its place in runs; a damaged one tells nothing."""
        if self.origin is None:
            return NO_ORIGIN
        try:
            return _decode_origin(self.origin)
        except ValueError:
            return NO_ORIGIN


class Wait(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Something that a run waits for, and where in its code. Stored by position: only append."""

    kind: str
    key: str
    since_ms: int = 0
    detail: str = ""
    site: str = ""


TIMED_WAITS: Final = frozenset({"timer", "retry"})
"""The kinds of waits that end by themselves, at a time."""


class Yield(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """With what a run gives up its slot: how far it has seen its journal, and what shall wake it.

    That is its earliest timer, and news: so many entries, or so long after the first of them.
    """

    seen: int
    wake_at_ms: int = 0
    wake_key: str = ""
    wake_index: int = 0
    patience_n: int = 1
    patience_ms: int = 0
    waits: tuple[Wait, ...] = ()
    wait_count: int = 0


class RunProgress(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={
        "begun_at_ms": "b",
        "generation": "g",
        "seen": "s",
        "wake_at_ms": "wa",
        "wake_key": "wk",
        "wake_index": "wi",
        "patience_n": "pn",
        "patience_ms": "pm",
        "news_at_ms": "na",
        "home_worker_id": "h",
        "park": "p",
        "park_count": "pc",
        "waits": "w",
        "wait_count": "wc",
        "handed_pos": "hp",
    },
):
    """Where a run stands. Short names keep the stored form small.

    ``begun_at_ms`` is the first hand-out of its ``generation``, which counts how often it has begun
    anew. ``seen`` is the position at its last yield. ``wake_at_ms`` is its earliest timer, or when
    it is tried again after it was parked; ``news_at_ms`` when it hears of entries for whose number
    it had ``patience``. ``park`` is why it waits if its code does not fit its journal.
    ``handed_pos`` is where its journal ended at its last hand-out.
    """

    begun_at_ms: int = 0
    generation: int = 0
    seen: int = 0
    wake_at_ms: int = 0
    wake_key: str = ""
    wake_index: int = 0
    patience_n: int = 1
    patience_ms: int = 0
    news_at_ms: int = 0
    home_worker_id: str | None = None
    park: ErrorInfo | None = None
    park_count: int = 0
    waits: tuple[Wait, ...] = ()
    wait_count: int = 0
    handed_pos: int = 0


NOT_BEGUN = RunProgress()
"""Shared by all runs that were never handed out."""
