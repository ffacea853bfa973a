"""Change hints: they say that something changed, but not its content.

A reader that shows lists waits for hints and then reads again what they name. A hint is small
enough to be sent to every server, and contains nothing of a payload.
"""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from tenure.core.limits import EVENT_NUMBER_DIGITS_MAX

# Used as the queue of things that are in no queue.
_NO_QUEUE: Final = "-"
_WORDS: Final = 6


class EventKind(enum.StrEnum):
    """The kind of thing that changed."""

    TASK = "task"
    # A run of a workflow; its state is its status.
    RUN = "run"
    WORKER = "worker"
    QUEUE = "queue"
    NAMESPACE = "namespace"
    SCHEDULE = "schedule"
    # An HTTP worker; its id is its name.
    ENDPOINT = "endpoint"
    # A running attempt reported progress: its task or run has a new version, and is otherwise the
    # same.
    PROGRESS = "progress"

    # Enum's own hash is a Python function.
    __hash__ = str.__hash__


ALL_KINDS: Final = frozenset(EventKind)
# The kinds for a subscriber that does not choose.
CHANGES: Final = ALL_KINDS - {EventKind.PROGRESS}


class Hint(msgspec.Struct, frozen=True, gc=False):
    """One thing that changed: its id, its new version and state, and its queue."""

    kind: EventKind
    namespace: str
    id: str
    version: int
    state: str
    queue: str = ""


class EventFilter(msgspec.Struct, frozen=True, gc=False):
    """The hints that a subscriber wants: one namespace, some kinds, optionally one queue."""

    namespace: str
    kinds: AbstractSet[EventKind] = ALL_KINDS
    queue: str = ""

    def takes(self, hint: Hint) -> bool:
        """Return whether a hint of this namespace is wanted."""
        return hint.kind in self.kinds and (not self.queue or hint.queue == self.queue)


def text_of(hint: Hint) -> str:
    """Return a hint as the words that servers send each other; names contain no spaces."""
    queue = hint.queue or _NO_QUEUE
    return f"{hint.kind.value} {hint.namespace} {hint.id} {hint.version} {hint.state} {queue}"


def hint_of(text: str) -> Hint | None:
    """Return the received hint, or None if it cannot be read here."""
    words = text.split(" ")
    if len(words) != _WORDS or not all(words):
        return None
    kind, namespace, thing, version, state, queue = words
    if kind not in _KINDS or not _is_number(version):
        return None
    queue = "" if queue == _NO_QUEUE else queue
    return Hint(EventKind(kind), namespace, thing, int(version), state, queue)


def position_text(server_id: str, seq: int) -> str:
    """Return the id of an event: the server that sent it, and its number there."""
    return f"{server_id}:{seq}"


def position_of(text: str, server_id: str) -> int | None:
    """Return the number in the id of an event, or None if it is invalid or of another server."""
    server, _, number = text.rpartition(":")
    return int(number) if server == server_id and _is_number(number) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= EVENT_NUMBER_DIGITS_MAX


_KINDS: Final = frozenset(each.value for each in EventKind)
