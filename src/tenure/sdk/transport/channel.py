"""The connection to a server, or to one of several: deadlines, back-off, typed errors.

A ``Channel`` belongs to one event loop. It connects with its first call, goes on to the next target
when one fails, and raises nothing but the errors of ``tenure.errors``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

from tenure import __version__
from tenure.errors import ERRORS, TenureError, Unauthenticated, Unavailable
from tenure.sdk.transport import fork_guard, refusal
from tenure.sdk.transport.api_key import ApiKeySource
from tenure.sdk.transport.relay import GrpcValue
from tenure.sdk.transport.relayed import RelayedConnection, RelayProcess
from tenure.sdk.transport.target import split_targets
from tenure.sdk.transport.tls import TLS, credentials, is_exposed
from tenure.transport import grpc

__all__ = ["Backoff", "Channel", "Method", "Stream"]

log = logging.getLogger("tenure.client")

Request = TypeVar("Request")
Response = TypeVar("Response")
Asked = TypeVar("Asked", bound=Message)
Answered = TypeVar("Answered", bound=Message)
Options = tuple[tuple[str, str | int], ...]

# The limit of one try. A busy server answers by then; after it the next target is tried.
TRY_SECONDS: Final = 10.0
BACKOFF_SECONDS: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 2.0
LAST_TRY_SECONDS: Final = 0.05
# A longer outage is logged while it lasts.
_WARN_SECONDS: Final = 1.0
# Longer than any single try, so that a channel is closed only when no call is open on it.
_RETIRED_SECONDS: Final = 30.0
_OPTIONS: Final[Options] = (
    ("grpc.primary_user_agent", f"tenure-python/{__version__}"),
    # A channel that replaces another is a connection of its own.
    ("grpc.use_local_subchannel_pool", 1),
    # Only the target says where the server is, not the proxy variables of the environment.
    ("grpc.enable_http_proxy", 0),
    # The server has its limits; what it sends is wanted.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name the time that one attempt to connect has.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class Method(Generic[Request, Response]):
    """A method of a service, and how its messages are written and read."""

    __slots__ = ("path", "read", "write")

    def __init__(
        self, path: str, write: Callable[[Request], bytes], read: Callable[[bytes], Response]
    ) -> None:
        """Name the method as ``service/method``, without the package."""
        self.path = f"/tenure.v1.{path}"
        self.write = write
        self.read = read

    @staticmethod
    def of(path: str, request: type[Asked], response: type[Answered]) -> Method[Asked, Answered]:
        """Return the method with these messages."""
        return Method(path, request.SerializeToString, response.FromString)


class TargetConnection:
    """One channel to one target, in this process."""

    def __init__(self, target: str, options: Options, tls: TLS | None) -> None:
        self.target = target
        if tls is None:
            self._channel = grpc.aio.insecure_channel(target, options=options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials(tls), options=options)
        # Some stubs of gRPC know an asynchronous channel only by its types.
        self._unary: dict[str, Any] = {}

    def unary(self, method: Method[Request, Response]) -> GrpcValue:
        """Return the callable of a unary method; it is made once."""
        known = self._unary.get(method.path)
        if known is None:
            known = self._unary[method.path] = self._channel.unary_unary(
                method.path, request_serializer=method.write, response_deserializer=method.read
            )
        return known

    def stream(self, method: Method[Request, Response]) -> GrpcValue:
        """Return the callable of a method with streams in both directions."""
        return self._channel.stream_stream(
            method.path, request_serializer=method.write, response_deserializer=method.read
        )

    async def close(self) -> None:
        """End the connection, and every call on it."""
        await self._channel.close()


AnyConnection = TargetConnection | RelayedConnection


class Channel:
    """Calls to whichever of the targets answers."""

    def __init__(
        self,
        targets: str | Sequence[str] | None,
        *,
        api_key: str | Path | None = None,
        tls: TLS | None = None,
        keep_alive_s: float = 0.0,
    ) -> None:
        """Take ``"host:port"``, ``"host1:port,host2:port"`` or a sequence; connect later.

        ``keep_alive_s`` is for streams without heartbeats of their own: after so long a silence
        the server is asked whether it is still there, as long as a call is open.
        """
        self.targets = split_targets(targets)
        self._options = (*_OPTIONS, *_keep_alive(keep_alive_s))
        self.api_key = ApiKeySource(api_key)
        self._tls = tls
        if is_exposed(self.targets, self.api_key.text, tls):
            log.warning(
                "The API key is sent to %s without TLS, so others on the network can read it. "
                "Use TLS if the server offers it: tls=True, or TENURE_TLS=1.",
                self.place,
            )
        self._index = 0
        self._current: AnyConnection | None = None
        self._retired: list[tuple[float, AnyConnection]] = []
        self._relay: RelayProcess | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @property
    def target(self) -> str:
        """The target that the next call goes to."""
        return self.targets[self._index]

    @property
    def place(self) -> str:
        """All targets, for messages."""
        return ", ".join(self.targets)

    def _connection(self) -> AnyConnection:
        if self._is_closed:
            raise RuntimeError("The client was closed. Make a new one.")
        loop = asyncio.get_running_loop()
        if self._current is None:
            self._loop = loop
            self._current = self._open()
        elif loop is not self._loop:
            raise RuntimeError("A client belongs to one event loop. Make one client for each loop.")
        return self._current

    def _open(self) -> AnyConnection:
        try:
            if not fork_guard.needs_relay():
                return TargetConnection(self.target, self._options, self._tls)
            if self._relay is None:
                self._relay = RelayProcess()
            return RelayedConnection(self.target, self._options, self._relay, self._tls)
        except ValueError as error:
            # A file that is being replaced is whole again in a moment.
            raise Unavailable(str(error), reason=refusal.UNREACHABLE) from error

    async def ask(
        self, method: Method[Request, Response], request: Request, *, timeout_s: float = TRY_SECONDS
    ) -> Response:
        """Call once and return the answer. A target that does not answer is left for the next."""
        connection = self._connection()
        call = connection.unary(method)(request, timeout=timeout_s, metadata=self.api_key.metadata)
        try:
            answer: Response = await call
        except grpc.aio.AioRpcError as error:
            raise await self.judge(connection, error) from error
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise _closed(connection.target) from None
        return answer

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout_s: float,
        again: Callable[[], Request] | None = None,
        since: float | None = None,
    ) -> Response:
        """Call until there is an answer that repeating would not change, or the time is over.

        ``again`` makes what is sent from then on when a server may have got the first request.
        ``since`` is when the caller began to wait, if that was earlier.
        """
        started = time.monotonic()
        backoff = Backoff()
        is_sent = False
        while True:
            left_s = timeout_s - (time.monotonic() - started)
            try:
                return await self.ask(
                    method, request, timeout_s=max(min(TRY_SECONDS, left_s), 0.001)
                )
            except TenureError as error:
                if self._is_closed or not ERRORS[error.code].is_retryable:
                    raise
                left_s = timeout_s - (time.monotonic() - started)
                # However long the pause would be, the last try comes when the time is nearly over.
                pause_s = backoff.next_s(error, most_s=left_s - LAST_TRY_SECONDS)
                if left_s <= max(LAST_TRY_SECONDS, pause_s):
                    tried_s = timeout_s + started - (since or started)
                    raise self._final(error, tried_s) from error
                backoff.warn(error, f"Trying for another {left_s:.0f} s.")
                is_sent = is_sent or not refusal.is_unsent(error)
            await asyncio.sleep(pause_s)
            if is_sent and again is not None:
                request = again()

    def stream(self, method: Method[Request, Response]) -> Stream[Request, Response]:
        """Open a stream in both directions to the present target."""
        connection = self._connection()
        call = connection.stream(method)(metadata=self.api_key.metadata)
        return Stream(self, connection, call)

    async def move(self, failed: AnyConnection) -> None:
        """Go to the next target, or to the same again, unless somebody has done so already."""
        if failed is not self._current:
            return
        now = time.monotonic()
        self._index = (self._index + 1) % len(self.targets)
        self._current = None
        self._retired.append((now, failed))
        # A call on it may not have noticed yet; closing it at once would cancel that call.
        old = [each for at, each in self._retired if now - at > _RETIRED_SECONDS]
        self._retired = [pair for pair in self._retired if now - pair[0] <= _RETIRED_SECONDS]
        for connection in old:
            await connection.close()

    async def close(self) -> None:
        """End all connections. What is still asked for fails; closing twice is harmless."""
        self._is_closed = True
        connections = [each for _, each in self._retired]
        if self._current is not None:
            connections.append(self._current)
        self._retired, self._current = [], None
        for connection in connections:
            await connection.close()
        if self._relay is not None:
            await self._relay.close()

    async def judge(self, connection: AnyConnection, error: grpc.aio.AioRpcError) -> TenureError:
        """Return what an error means, and leave a target that will not answer the next call."""
        meant = refusal.translate(error, connection.target, is_tls=self._tls is not None)
        if isinstance(meant, Unauthenticated):
            self.api_key.look_again()
        if refusal.is_silence(meant) or (len(self.targets) > 1 and refusal.is_elsewhere(meant)):
            await self.move(connection)
        return meant

    def _final(self, error: TenureError, tried_s: float) -> TenureError:
        """Return the last error of a call, with how long it was tried."""
        if not refusal.is_silence(error):
            return error
        message = f"{error.message} It was tried for {round(tried_s, 2):g} s."
        if len(self.targets) > 1:
            message = f"{message} All targets were tried: {self.place}."
        return type(error)(message, **error.fields)


class Stream(Generic[Request, Response]):
    """One stream in both directions; its errors are those of ``tenure.errors``."""

    def __init__(self, channel: Channel, connection: AnyConnection, call: GrpcValue) -> None:
        """Use ``Channel.stream`` instead."""
        self._channel = channel
        self._connection = connection
        self._call = call

    @property
    def target(self) -> str:
        """Where the stream goes."""
        return self._connection.target

    async def write(self, frame: Request) -> None:
        """Send a frame; wait while the server does not read."""
        try:
            await self._call.write(frame)
        except grpc.aio.AioRpcError as error:
            raise await self._channel.judge(self._connection, error) from error
        except asyncio.InvalidStateError:
            raise await self._end() from None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise _closed(self.target) from None

    async def read(self) -> Response | None:
        """Return the next frame, or None when the server has ended the stream."""
        try:
            frame: Response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise await self._channel.judge(self._connection, error) from error
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise _closed(self.target) from None
        return None if frame is grpc.aio.EOF else frame

    async def done_writing(self) -> None:
        """Say that no more frames will be sent."""
        try:
            await self._call.done_writing()
        except grpc.aio.AioRpcError as error:
            raise await self._channel.judge(self._connection, error) from error
        except asyncio.InvalidStateError:
            raise await self._end() from None

    def cancel(self) -> None:
        """Give the stream up; the server is told."""
        self._call.cancel()

    async def give_up(self) -> None:
        """Leave a server that does not answer; the next call goes to the next target."""
        self._call.cancel()
        await self._channel.move(self._connection)

    async def _end(self) -> TenureError:
        """Return why a stream has ended that somebody wanted to write to."""
        status = await self._call.code()
        if status is grpc.StatusCode.OK or self._call.cancelled():
            return _closed(self.target)
        initial, trailing = (
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
        )
        error = grpc.aio.AioRpcError(status, initial, trailing, await self._call.details())
        return await self._channel.judge(self._connection, error)


class Backoff:
    """How long to wait before the next try: full jitter, and never less than the server asks."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._limit_s = BACKOFF_SECONDS
        self._is_told = False

    def next_s(self, error: TenureError, *, most_s: float = math.inf) -> float:
        """Return the pause after an error, in seconds: ``most_s``, unless the server asks more."""
        asked_s = int(error.fields.get("retry_after_ms", 0)) / 1_000
        pause_s = asked_s + random.uniform(0.0, self._limit_s)  # noqa: S311 (jitter is no secret)
        self._limit_s = min(2 * self._limit_s, BACKOFF_SECONDS_MAX)
        return max(min(pause_s, most_s), asked_s)

    def warn(self, error: TenureError, what_now: str) -> None:
        """Say once that something is wrong, as soon as it has lasted for a while."""
        if not self._is_told and time.monotonic() - self._started >= _WARN_SECONDS:
            self._is_told = True
            log.warning("%s %s", error.message, what_now)


def _keep_alive(seconds: float) -> Options:
    if not seconds:
        return ()
    return (
        ("grpc.keepalive_time_ms", round(seconds * 1_000)),
        ("grpc.keepalive_timeout_ms", round(TRY_SECONDS * 1_000)),
        ("grpc.http2.max_pings_without_data", 0),
    )


def is_cancelled() -> bool:
    """Tell whether it is the running task that is cancelled, and not merely a call of gRPC."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _closed(target: str) -> Unavailable:
    message = f"The connection to {target} was closed. Repeating the call is safe."
    return Unavailable(message, reason="closed")
