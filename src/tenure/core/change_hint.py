"""Hints: that something changed, never what it holds.

Whoever shows lists listens to hints and reads again what they name. A hint is small enough to be
told to every server, and says nothing that a payload holds.
"""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from tenure.core.limits import EVENT_NUMBER_DIGITS_MAX

# Stands for the queue of what is in none.
_NO_QUEUE: Final = "-"
_WORDS: Final = 6


class EventKind(enum.StrEnum):
    """What changed."""

    TASK = "task"
    WORKER = "worker"
    QUEUE = "queue"
    NAMESPACE = "namespace"
    # A running attempt says how far it is: its task has another version and is otherwise the same.
    PROGRESS = "progress"

    # Enum's own hash is a Python function.
    __hash__ = str.__hash__


ALL_KINDS: Final = frozenset(EventKind)
# What somebody hears of who does not choose.
CHANGES: Final = ALL_KINDS - {EventKind.PROGRESS}


class Hint(msgspec.Struct, frozen=True, gc=False):
    """One thing that changed: which, to which version and state, and the queue that it is in."""

    kind: EventKind
    namespace: str
    id: str
    version: int
    state: str
    queue: str = ""


class EventFilter(msgspec.Struct, frozen=True, gc=False):
    """Which hints somebody wants: of one namespace, of some kinds, perhaps of one queue."""

    namespace: str
    kinds: AbstractSet[EventKind] = ALL_KINDS
    queue: str = ""

    def takes(self, hint: Hint) -> bool:
        """Tell whether a hint of this namespace is wanted."""
        return hint.kind in self.kinds and (not self.queue or hint.queue == self.queue)


def text_of(hint: Hint) -> str:
    """Return a hint as the words that servers tell each other; no name holds a space."""
    queue = hint.queue or _NO_QUEUE
    return f"{hint.kind.value} {hint.namespace} {hint.id} {hint.version} {hint.state} {queue}"


def hint_of(text: str) -> Hint | None:
    """Return the hint that was told, or None for what makes no sense here."""
    words = text.split(" ")
    if len(words) != _WORDS or not all(words):
        return None
    kind, namespace, thing, version, state, queue = words
    if kind not in _KINDS or not _is_number(version):
        return None
    queue = "" if queue == _NO_QUEUE else queue
    return Hint(EventKind(kind), namespace, thing, int(version), state, queue)


def position_text(server_id: str, seq: int) -> str:
    """Return the id of an event: the server that gave it, and its number there."""
    return f"{server_id}:{seq}"


def position_of(text: str, server_id: str) -> int | None:
    """Return the number in the id of an event, or None for one of another server or of nobody."""
    server, _, number = text.rpartition(":")
    return int(number) if server == server_id and _is_number(number) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= EVENT_NUMBER_DIGITS_MAX


_KINDS: Final = frozenset(each.value for each in EventKind)
