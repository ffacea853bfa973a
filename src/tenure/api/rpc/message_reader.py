"""Reads the message of a call: within a time limit, and only a few without a key at a time.

Data of unread calls stays below a small window. But as soon as a message is read, gRPC buffers as
much as its client has announced, and does not say how much has arrived. So the number of messages
is limited: those of callers without a key wait for a place, the addresses take turns, and a slow
message loses its place when others wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import grpc

from tenure.api.guard.client_address import rpc_address
from tenure.api.guard.fair_share import SharedPlaces, client_of
from tenure.api.rpc.context import Context
from tenure.core import limits
from tenure.core.access.principal import Principal
from tenure.errors import DeadlineExceeded, InvalidArgument, RateLimited

T = TypeVar("T")


class StrangerMessages:
    """The messages of callers without a key that are being read, and the calls that wait."""

    def __init__(self) -> None:
        """Start with none."""
        self.count = 0
        self._waiting = SharedPlaces(limits.STRANGER_CALLS_MAX)
        # Addresses that waited longest come first.
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        # Until when each message that is being read may keep its place if others wait.
        self._kept_until_s: dict[asyncio.Timeout, float] = {}

    @property
    def waiting_count(self) -> int:
        """Return how many calls wait for a place."""
        return self._waiting.count

    @asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """Read a message for as long as the block runs; wait for a place before."""
        if self.count >= limits.STRANGER_MESSAGES_MAX:
            await self._wait(client)
        else:
            self.count += 1
        patience = asyncio.timeout(None)
        now_s = asyncio.get_running_loop().time()
        self._kept_until_s[patience] = now_s + limits.STRANGER_MESSAGE_MS / 1_000
        try:
            async with patience:
                if self._lines:
                    self._hurry()
                yield
        except TimeoutError:
            if not patience.expired():
                raise
            raise _crowded("The message arrived too slowly, and other calls wait.") from None
        finally:
            del self._kept_until_s[patience]
            self._leave()

    def _hurry(self) -> None:
        """Let slow messages make room for waiting calls."""
        for patience, kept_until_s in self._kept_until_s.items():
            if patience.when() is None:
                patience.reschedule(kept_until_s)

    async def _wait(self, client: str) -> None:
        """Wait until a place is passed on to this call."""
        if not self._waiting.has_room(client):
            raise _crowded("Too many calls without an API key wait.")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.take(client)
        self._lines.setdefault(client, deque()).append(turn)
        self._hurry()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise
        finally:
            self._waiting.leave(client)

    def _leave(self) -> None:
        """Pass a place on to the next address, or give it back."""
        while self._lines:
            client, line = self._lines.popitem(last=False)
            turn = line.popleft()
            if line:
                self._lines[client] = line
            # Calls that were closed stay in line until their turn.
            if not turn.done():
                turn.set_result(None)
                return
        self.count -= 1


class MessageReader:
    """Reads for all calls of a server."""

    def __init__(self) -> None:
        """Start with no message."""
        self.strangers = StrangerMessages()

    async def read(self, context: Context, principal: Principal) -> bytes:
        """Return the single message of a call, as it was sent."""
        if principal.key_id:
            return await in_time(_receive(context))
        return await in_time(self._read_of_stranger(context))

    async def _read_of_stranger(self, context: Context) -> bytes:
        async with self.strangers.place(client_of(rpc_address(context.peer()))):
            return await _receive(context)


async def in_time(reading: Awaitable[T]) -> T:
    """Wait for a message, within the time limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limits.MESSAGE_MS / 1_000):
            return await reading
    # Raised here, where nothing is its context: that would keep the call, with what came of its
    # message, until the collector comes by.
    message = "The message did not arrive in time. Send it faster, or in smaller parts."
    raise DeadlineExceeded(message)


def _crowded(message: str) -> RateLimited:
    return RateLimited(
        f"{message} Try again after the given time.", retry_after_ms=limits.OVERLOAD_RETRY_MS
    )


async def _receive(context: Context) -> bytes:
    data = await context.read()
    if data is grpc.aio.EOF:
        raise InvalidArgument("The call has no message", field="request")
    assert isinstance(data, bytes)
    return data
