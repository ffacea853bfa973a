"""Signals: typed messages to a run."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar, overload

from tenure.core import check
from tenure.errors import InvalidArgument
from tenure.sdk import payload
from tenure.sdk.payload import BYTES, JSON, Payload, PayloadError, UserValue
from tenure.sdk.workflow.ending import Wait
from tenure.sdk.workflow.journal import Entry
from tenure.sdk.workflow.source_line import calling_line

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

    def encode(self, value: T) -> Payload:
        """Return a value as it travels, before any codec.

        It is decoded as a run does it, so that a wrong type raises ``TypeError`` here: a run could
        not go on with it.
        """
        if self.type is bytes and isinstance(value, bytes):
            return Payload(BYTES, value)
        try:
            data = payload.encode_json(value)
            payload.decode_json(data, self.type)
            payload.check_value(value, self.type)
        except PayloadError as error:
            raise TypeError(f"signal {self.name}: {error}") from None
        return Payload(JSON, data)


@overload
def signal(name: str, type: None = None) -> Signal[None]: ...
@overload
def signal(name: str, type: type[T]) -> Signal[T]: ...
def signal(name: str, type: UserValue = None) -> Signal[UserValue]:
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
        # In the order in which they began to wait.
        self._waiting: dict[object, Wait] = {}
        self._untaken: set[int] = set()

    def put(self, name: str, entry: Entry) -> None:
        """Deliver a signal."""
        self._untaken.add(entry.pos)
        self._queue(name).put_nowait(entry)

    async def get(self, name: str, since_ms: int = 0) -> Entry:
        """Wait for the next signal of a name and take it."""
        token = object()
        self._waiting[token] = Wait("signal", name, line=calling_line(), since_ms=since_ms)
        try:
            entry = await self._queue(name).get()
        finally:
            del self._waiting[token]
        self._untaken.discard(entry.pos)
        return entry

    def count(self, name: str) -> int:
        """Return how many signals of a name wait."""
        return self._queue(name).qsize()

    @property
    def untaken(self) -> tuple[int, ...]:
        """The positions of the signals that wait."""
        return tuple(sorted(self._untaken))

    def waits(self) -> list[Wait]:
        """Return what the body waits for: of each name whoever has waited longest."""
        first: dict[str, Wait] = {}
        for wait in self._waiting.values():
            first.setdefault(wait.key, wait)
        return [first[name] for name in sorted(first)]

    def _queue(self, name: str) -> asyncio.Queue[Entry]:
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = asyncio.Queue()
        return found
