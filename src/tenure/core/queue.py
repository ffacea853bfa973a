"""A queue: a named line of tasks inside a namespace, with its pause and limit."""

from __future__ import annotations

import msgspec

from tenure.errors import Rejection


class Queue(msgspec.Struct, frozen=True, gc=False):
    """The settings of a queue. A queue that was never changed has no row, no pause and no limit."""

    namespace: str
    name: str
    is_paused: bool = False
    concurrency_max: int = 0
    version: int = 0

    def __post_init__(self) -> None:
        """Check the invariants of a queue."""
        assert self.concurrency_max >= 0

    @property
    def has_brakes(self) -> bool:
        """Return whether a pause or a limit keeps tasks of this queue from being handed out."""
        return self.is_paused or self.concurrency_max > 0


def free_slots(queue: Queue, *, held_count: int, wanted: int) -> int:
    """Return how many of ``wanted`` tasks the queue may hand out now."""
    if queue.is_paused:
        return 0
    if queue.concurrency_max == 0:
        return wanted
    return max(0, min(wanted, queue.concurrency_max - held_count))


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """An isolation boundary: ``tenant/workspace``."""

    name: str
    created_at_ms: int
    is_disabled: bool = False


def namespace_disabled(name: str) -> Rejection:
    """Refuse new work and new workers in a disabled namespace."""
    message = f"Namespace {name} is disabled. To enable it, run: tenure namespaces enable {name}"
    return Rejection("wrong_state", message, {"state": "disabled"})
