"""Where an offer is delivered: a waiting poll, or a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.core.journal.entry import JournalPage
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task
from tenure.core.worker.record import EndReason
from tenure.engine.command import TaskRef


class Sink(Protocol):
    """Where an offer is delivered. Calls may come twice and must not block."""

    @property
    def is_open(self) -> bool:
        """Return whether the receiver is still connected."""
        ...

    @property
    def room_bytes(self) -> int:
        """Return how many bytes of payloads fit now; less than one means to wait."""
        ...

    def give(self, tasks: Sequence[Task]) -> None:
        """Deliver handed-out tasks."""
        ...

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """Send cancels for tasks."""
        ...

    def stop(self, stops: Sequence[Stop]) -> None:
        """Send stops for attempts that have ended."""
        ...

    def page(self, ref: TaskRef, page: JournalPage) -> None:
        """Send what others have appended to the journal of a run."""
        ...

    def drain(self) -> None:
        """Send the drain: no more tasks come."""
        ...

    def end(self, reason: EndReason) -> None:
        """Send that the worker is offline."""
        ...
