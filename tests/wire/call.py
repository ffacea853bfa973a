"""Channels to a server, and what its refusals say."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar, cast

import grpc
import grpc.aio
from grpc_status import rpc_status

from tenure.v1.error_pb2 import ErrorDetail

Answer = TypeVar("Answer")

CALL_SECONDS: Final = 5.0
# Longer than the longest poll, so that a channel is closed only when nobody uses it any more.
RETIRED_SECONDS: Final = 30.0
# Failures further apart than this have nothing to do with each other.
CALM_SECONDS: Final = 3.0
BACKOFF_SECONDS_MAX: Final = 1.0
OPTIONS: Final = (
    # Each channel is a connection of its own.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name the time that one attempt to connect has.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 500),
)
_SILENT: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
# What grpc.aio says by itself of a write on a stream that the peer is just closing.
LOCAL_FAULT: Final = "Internal error from Core"
_RETRYABLE: Final = frozenset({"unavailable", "rate_limited", "deadline_exceeded"})


class Refused(Exception):
    """The server answered with a typed refusal that repeating does not change."""

    def __init__(self, detail: ErrorDetail) -> None:
        super().__init__(f"{detail.code}: {detail.message}")
        self.detail = detail

    @property
    def code(self) -> str:
        return self.detail.code


class NoAnswer(Exception):
    """Nobody answered, or not now; the same call may be sent again."""

    def __init__(self, code: grpc.StatusCode, text: str, detail: ErrorDetail | None) -> None:
        super().__init__(f"{code.name} {text}")
        self.status = code
        self.text = text
        self.detail = detail

    @property
    def retry_after_s(self) -> float:
        """How long to wait before the same call, as far as the server says."""
        return 0.0 if self.detail is None else self.detail.retry_after_ms / 1_000

    @property
    def is_odd(self) -> bool:
        """Tell whether no fault of the network or the store explains it."""
        is_silent = self.status in _SILENT or self.text == LOCAL_FAULT
        return not is_silent and not is_retryable(self.detail)


def is_retryable(detail: ErrorDetail | None) -> bool:
    """Tell whether the same thing may be accepted a little later."""
    return detail is not None and detail.code in _RETRYABLE


def open_channel(target: str) -> grpc.aio.Channel:
    """Return a channel that connects when it is used."""
    return grpc.aio.insecure_channel(target, options=OPTIONS)


def detail_of(error: grpc.aio.AioRpcError) -> ErrorDetail | None:
    """Return the typed detail of an error, if it has one."""
    # An error of grpc.aio has the methods of a call that the function looks at.
    status = rpc_status.from_call(cast("grpc.Call", error))
    for each in () if status is None else status.details:
        found = ErrorDetail()
        if each.Unpack(found):
            return found
    return None


def translate(error: grpc.aio.AioRpcError) -> Refused | NoAnswer:
    """Return what an error means for the caller."""
    detail = detail_of(error)
    if detail is not None and not is_retryable(detail):
        return Refused(detail)
    return NoAnswer(error.code(), error.details() or "", detail)


async def ask(call: Awaitable[Answer]) -> Answer:
    """Await a call; raise ``Refused`` or ``NoAnswer``."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise translate(error) from error


class Link:
    """The connection to one of several servers; when it fails, the next one is taken."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = list(targets)
        self._index = 0
        self._retired: list[tuple[float, grpc.aio.Channel]] = []
        self._failed_at_s = 0.0
        self._backoff_s = 0.0
        self.channel = open_channel(self._targets[0])

    @property
    def target(self) -> str:
        return self._targets[self._index]

    async def move(self, failed: grpc.aio.Channel) -> None:
        """Go to the next server, unless somebody has done so already, and wait a little."""
        if failed is self.channel:
            now = time.monotonic()
            is_calm = now - self._failed_at_s > CALM_SECONDS
            self._backoff_s = 0.2 if is_calm else min(2 * self._backoff_s, BACKOFF_SECONDS_MAX)
            self._failed_at_s = now
        await self.replace(failed)
        await asyncio.sleep(self._backoff_s * random.uniform(0.25, 1.25))

    async def replace(self, failed: grpc.aio.Channel) -> None:
        """Open a new channel, to the next server."""
        if failed is not self.channel:
            return
        now = time.monotonic()
        self._retired.append((now, failed))
        self._index = (self._index + 1) % len(self._targets)
        self.channel = open_channel(self.target)
        # A call on it may not have noticed yet; closing it at once would cancel that call.
        old = [each for at, each in self._retired if now - at > RETIRED_SECONDS]
        self._retired = [pair for pair in self._retired if now - pair[0] <= RETIRED_SECONDS]
        for channel in old:
            await channel.close()

    async def close(self) -> None:
        for _, channel in [*self._retired, (0.0, self.channel)]:
            await channel.close()
