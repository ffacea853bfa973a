"""Which enqueues may be stored without looking up whether their task existed before.

A client that gets no answer sends its enqueue again, marked, and the first request may still wait
somewhere. If it runs after the second one was done and its task has moved to history, it must find
that out. A look-up each time would slow down the common case; but an id made by a client shows the
minimum age of its request. A recent request is not looked up, and a marked one is not accepted
before the unmarked one can no longer count as recent.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec

from tenure.core.limits import (
    ENQUEUE_AHEAD_MS,
    ENQUEUE_DECIDED_MS,
    ENQUEUE_YOUNG_MS,
    YOUNG_MARGIN_MS,
)

# The place of the version digit in a UUID.
_VERSION_AT: Final = 14


class EnqueueWindow(msgspec.Struct, frozen=True, gc=False):
    """The ids that are recent at an instant: UUIDv7 texts sort by time."""

    first: str
    beyond: str

    @classmethod
    def at(cls, now_ms: int) -> Self:
        """Return the ids that are recent at ``now_ms``; the clock may be wrong by the margin."""
        span_ms = ENQUEUE_YOUNG_MS - YOUNG_MARGIN_MS
        return cls(_digits(now_ms - span_ms), _digits(now_ms + span_ms + 1))

    def has(self, task_id: str) -> bool:
        """Return whether an id was made just now; an id without a time never was."""
        return self.first <= task_id < self.beyond and task_id[_VERSION_AT] == "7"


NOBODY: Final = EnqueueWindow("", "")
"""No id is recent: everything is looked up."""


def is_exact(*, guessed_now_ms: int, now_ms: int) -> bool:
    """Return whether an estimate of the time was good enough for ``EnqueueWindow.at``."""
    return abs(now_ms - guessed_now_ms) <= YOUNG_MARGIN_MS


def undecided_ms(task_id: str, now_ms: int) -> int:
    """Return for how long an unmarked request with this id could still count as recent.

    An id from far ahead comes from a wrong clock; waiting for it would take too long.
    """
    if task_id[_VERSION_AT] != "7":
        return 0
    made_at_ms = int(task_id[:8] + task_id[9:13], 16)
    if made_at_ms > now_ms + ENQUEUE_AHEAD_MS:
        return 0
    return max(0, made_at_ms + ENQUEUE_DECIDED_MS - now_ms)


def _digits(at_ms: int) -> str:
    """Return the beginning of ids that were made at an instant."""
    text = f"{max(0, at_ms):012x}"
    return f"{text[:8]}-{text[8:]}"
