"""Signals: typed messages to a run."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from tenure.core import check
from tenure.errors import InvalidArgument
from tenure.sdk.payload import UserValue
from tenure.sdk.workflow.journal import Entry

T = TypeVar("T")


class Signal(Generic[T]):
    """A kind of message that runs wait for: a name, and the type of its value.

    >>> approve = signal("approve", Approval)
    """

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: UserValue) -> None:
        """Use ``signal`` instead."""
        self.name = name
        self.type = type

    def __repr__(self) -> str:
        return f"<signal {self.name}>"


def signal(name: str, type: type[T] | None = None) -> Signal[T]:
    """Declare a signal; without a type its value is None."""
    try:
        check.name(name, "name")
    except InvalidArgument as error:
        raise ValueError(f"signal {name!r}: {error.message}") from None
    return Signal(name, type)


class SignalInbox:
    """The signals of one run that its body has not taken yet, by name and in their order."""

    def __init__(self) -> None:
        """Begin empty."""
        self._queues: dict[str, asyncio.Queue[Entry]] = {}
        self._waiting: dict[str, int] = {}

    def put(self, name: str, entry: Entry) -> None:
        """Deliver a signal."""
        self._queue(name).put_nowait(entry)

    async def get(self, name: str) -> Entry:
        """Wait for the next signal of a name and take it."""
        self._waiting[name] = self._waiting.get(name, 0) + 1
        try:
            return await self._queue(name).get()
        finally:
            self._waiting[name] -= 1

    def count(self, name: str) -> int:
        """Return how many signals of a name wait."""
        return self._queue(name).qsize()

    @property
    def awaited(self) -> list[str]:
        """The names that the body waits for."""
        return sorted(name for name, count in self._waiting.items() if count)

    def _queue(self, name: str) -> asyncio.Queue[Entry]:
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = asyncio.Queue()
        return found
