"""Which enqueues may be stored without asking whether their task was there before.

A client that gets no answer sends its enqueue again, marked, and the first request may still wait
somewhere. If it runs after the second one was done and its task has moved to history, it must find
that out. Looking it up each time would cost the common case; so an id made by a client tells how
old its request is at least. A request that is young by that is not looked up, and a marked one is
not accepted before the unmarked one could not be taken for young any more.
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

# Where a UUID has the digit of its version.
_VERSION_AT: Final = 14


class EnqueueWindow(msgspec.Struct, frozen=True, gc=False):
    """The ids that are young at an instant: UUIDv7 texts sort by the time in their first digits."""

    first: str
    beyond: str

    @classmethod
    def at(cls, now_ms: int) -> Self:
        """Return what is young at ``now_ms``, by a clock that may be off by the margin."""
        span_ms = ENQUEUE_YOUNG_MS - YOUNG_MARGIN_MS
        return cls(_digits(now_ms - span_ms), _digits(now_ms + span_ms + 1))

    def has(self, task_id: str) -> bool:
        """Tell whether an id was made just now; one that carries no time never was."""
        return self.first <= task_id < self.beyond and task_id[_VERSION_AT] == "7"


NOBODY: Final = EnqueueWindow("", "")
"""Nothing is young: everything is looked up."""


def is_exact(*, guessed_now_ms: int, now_ms: int) -> bool:
    """Tell whether a guess of the time was good enough for ``EnqueueWindow.at``."""
    return abs(now_ms - guessed_now_ms) <= YOUNG_MARGIN_MS


def undecided_ms(task_id: str, now_ms: int) -> int:
    """Return for how long an unmarked request with this id could still be taken for young.

    An id from far ahead comes from a clock that is wrong; waiting for it would take too long.
    """
    if task_id[_VERSION_AT] != "7":
        return 0
    made_at_ms = int(task_id[:8] + task_id[9:13], 16)
    if made_at_ms > now_ms + ENQUEUE_AHEAD_MS:
        return 0
    return max(0, made_at_ms + ENQUEUE_DECIDED_MS - now_ms)


def _digits(at_ms: int) -> str:
    """Return how an id begins that was made at an instant."""
    text = f"{max(0, at_ms):012x}"
    return f"{text[:8]}-{text[8:]}"
