"""The way to whoever made an offer: a poll that waits, or a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.core.task.effect import Stop
from tenure.core.task.record import Task
from tenure.core.worker.record import EndReason
from tenure.engine.command import TaskRef


class Sink(Protocol):
    """Where the consumer of an offer is reached. Calls may come twice and must not block."""

    @property
    def is_open(self) -> bool:
        """Tell whether somebody still listens."""
        ...

    @property
    def room_bytes(self) -> int:
        """Return how much of payloads can be given now; less than one means to wait."""
        ...

    def give(self, tasks: Sequence[Task]) -> None:
        """Deliver handed-out tasks."""
        ...

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """Tell that tasks are to be cancelled."""
        ...

    def stop(self, stops: Sequence[Stop]) -> None:
        """Tell that attempts are over."""
        ...

    def drain(self) -> None:
        """Tell that the worker drains: nothing more comes."""
        ...

    def end(self, reason: EndReason) -> None:
        """Tell that the worker is offline."""
        ...
