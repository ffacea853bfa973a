"""gRPC through a relay process, for a process that was forked from one that used gRPC itself.

It has the same few methods as a connection of ``channel``, and raises the same errors.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from tenure.sdk.transport.relay import Frame, Framing, GrpcValue
from tenure.sdk.transport.tls import TLS, checked
from tenure.transport import grpc

_EXIT_SECONDS: Final = 5.0
_GONE: Final = Frame("end", 0, status="UNAVAILABLE", text="the relay process ended")


class RelayProcess:
    """The relay of one link; it is started with the first call, and again when it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._framing: Framing | None = None
        self._reading: asyncio.Task[None] | None = None
        self._calls: dict[int, asyncio.Queue[Frame]] = {}
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()

    def new_number(self) -> int:
        """Return a number for a call or a channel."""
        return next(self._numbers)

    async def begin(self, frame: Frame) -> asyncio.Queue[Frame]:
        """Begin a call; what comes back goes into the queue."""
        async with self._starting:
            if self._framing is None:
                await self._start()
        inbox: asyncio.Queue[Frame] = asyncio.Queue()
        self._calls[frame.call] = inbox
        self.send(frame)
        return inbox

    def send(self, frame: Frame) -> None:
        """Say something about a call that was begun."""
        if self._framing is not None:
            self._framing.write(frame)
        elif frame.call in self._calls:
            self._calls[frame.call].put_nowait(_GONE)

    def end(self, call: int) -> None:
        """Forget a call."""
        self._calls.pop(call, None)

    async def close(self) -> None:
        """End the process."""
        if self._framing is not None:
            self._framing.close()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._reap()

    async def _start(self) -> None:
        # One that lost its connection to us ends by itself.
        await self._reap()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: ASYNC220 (ours, and it does not wait)
                [sys.executable, "-P", "-m", "tenure.sdk.transport.relay", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # It finds what this process has found, however that was told where to look.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        self._framing = Framing(reader, writer)
        self._reading = asyncio.get_running_loop().create_task(self._read(self._framing))

    async def _read(self, framing: Framing) -> None:
        try:
            while (frame := await framing.read()) is not None:
                inbox = self._calls.get(frame.call)
                if inbox is not None:
                    inbox.put_nowait(frame)
        finally:
            self._framing = None
            framing.close()
            for inbox in self._calls.values():
                inbox.put_nowait(_GONE)

    async def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, _EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)


class RelayedConnection:
    """One channel of the relay to one target."""

    def __init__(
        self,
        target: str,
        options: Sequence[tuple[str, str | int]],
        relay: RelayProcess,
        tls: TLS | None,
    ) -> None:
        self.target = target
        self._relay = relay
        self._channel = relay.new_number()
        self._options = msgspec.msgpack.encode(options).decode("latin-1")
        # Files that cannot be used are a matter of this process, and the relay reads them again.
        self._tls = None if tls is None else checked(tls).paths

    def unary(self, method: GrpcValue) -> Callable[..., Awaitable[GrpcValue]]:
        """Return a function that calls a unary method."""

        async def call(request: GrpcValue, *, timeout: float, metadata: GrpcValue) -> GrpcValue:  # noqa: ASYNC109
            frame = self._frame("ask", method.path, metadata)
            frame.data, frame.timeout_s = method.write(request), timeout
            inbox = await self._relay.begin(frame)
            try:
                answer = await asyncio.wait_for(inbox.get(), timeout + _EXIT_SECONDS)
            except BaseException:
                self._relay.send(Frame("cancel", frame.call))
                raise
            finally:
                self._relay.end(frame.call)
            if answer.kind == "end":
                raise _error(answer)
            return method.read(answer.data)

        return call

    def stream(self, method: GrpcValue) -> Callable[..., RelayedStream]:
        """Return a function that opens a stream."""

        def call(*, metadata: GrpcValue) -> RelayedStream:
            return RelayedStream(self._relay, self._frame("open", method.path, metadata), method)

        return call

    async def close(self) -> None:
        """End the channel."""
        self._relay.send(Frame("close", 0, channel=self._channel))

    def _frame(self, kind: str, path: str, metadata: GrpcValue) -> Frame:
        return Frame(
            kind,
            self._relay.new_number(),
            channel=self._channel,
            target=self.target,
            path=path,
            pairs=list(metadata or ()),
            text=self._options,
            tls=self._tls,
        )


class RelayedStream:
    """A stream through the relay, with the methods of one of gRPC."""

    def __init__(self, relay: RelayProcess, frame: Frame, method: GrpcValue) -> None:
        self._relay = relay
        self._opening = frame
        self._method = method
        self._news: asyncio.Queue[Frame] | None = None
        self._begun = asyncio.Lock()
        self._end: Frame | None = None

    async def write(self, message: GrpcValue) -> None:
        """Send a message."""
        await self._begin()
        if self._end is not None:
            raise asyncio.InvalidStateError("the stream has ended")
        self._relay.send(Frame("write", self._opening.call, self._method.write(message)))

    async def read(self) -> GrpcValue:
        """Return the next message, or the end of gRPC."""
        news = await self._begin()
        while self._end is None:
            frame = await news.get()
            if frame.kind == "frame":
                return self._method.read(frame.data)
            if frame.kind == "end":
                self._end = frame
                self._relay.end(self._opening.call)
        if self._end.status == "OK":
            return grpc.aio.EOF
        raise _error(self._end)

    async def done_writing(self) -> None:
        """Say that no more messages come."""
        await self._begin()
        self._relay.send(Frame("done", self._opening.call))

    def cancel(self) -> None:
        """Give the stream up."""
        if self._news is not None and self._end is None:
            self._relay.send(Frame("cancel", self._opening.call))
            self._relay.end(self._opening.call)

    def cancelled(self) -> bool:
        """Tell whether it was given up here; what ends it otherwise is in ``code``."""
        return self._end is None

    async def code(self) -> grpc.StatusCode:
        """Return how it ended."""
        return grpc.StatusCode[self._end.status] if self._end else grpc.StatusCode.CANCELLED

    async def details(self) -> str:
        """Return what was said about its end."""
        return self._end.text if self._end else ""

    async def initial_metadata(self) -> GrpcValue:
        """Return nothing: nobody asks for it."""
        return grpc.aio.Metadata()

    async def trailing_metadata(self) -> GrpcValue:
        """Return what came with its end."""
        return _metadata(self._end)

    async def _begin(self) -> asyncio.Queue[Frame]:
        async with self._begun:
            if self._news is None:
                self._news = await self._relay.begin(self._opening)
        return self._news


def _metadata(end: Frame | None) -> grpc.aio.Metadata:
    # Pure Python, like all that is used of gRPC here.
    return grpc.aio.Metadata(*(end.pairs if end else ()))


def _error(end: Frame) -> grpc.aio.AioRpcError:
    status = grpc.StatusCode[end.status]
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), _metadata(end), end.text)
