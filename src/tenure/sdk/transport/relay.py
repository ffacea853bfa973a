"""A process that speaks gRPC for one that cannot: ``python -m tenure.sdk.relay FD``.

It is a program of its own, started fresh, and knows nothing of Tenure: bytes that come over a
socket pair with a path and a target go out as a call, and the answer goes back. It ends when the
other side does.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from tenure.sdk.transport.tls import credentials, of_paths
from tenure.transport import grpc

_LENGTH_BYTES: Final = 4


GrpcValue = Any
"""A message, a call or metadata of gRPC, whose types say no more."""


class Frame(msgspec.Struct, array_like=True, gc=False):
    """What the two sides say to each other.

    To the relay: ask (one call), open, write, done, cancel (a stream or call), close (a channel).
    From it: answer, frame, and end with a status.
    """

    kind: str
    call: int
    data: bytes = b""
    channel: int = 0
    target: str = ""
    path: str = ""
    timeout_s: float = 0.0
    # Metadata: text, or bytes where the name ends in -bin.
    pairs: list[tuple[str, Any]] = []
    status: str = ""
    text: str = ""
    # The files of TLS, if the channel has it.
    tls: tuple[str, str, str] | None = None


class Framing:
    """Frames over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Frame)

    async def read(self) -> Frame | None:
        """Return the next frame; None when the other side has gone."""
        try:
            head = await self._reader.readexactly(_LENGTH_BYTES)
            return self._decoder.decode(await self._reader.readexactly(int.from_bytes(head, "big")))
        except (asyncio.IncompleteReadError, OSError):
            return None

    def write(self, frame: Frame) -> None:
        """Send a frame."""
        data = self._encoder.encode(frame)
        self._writer.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


class Relay:
    """The calls that the other side has open."""

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._streams: dict[int, asyncio.Queue[bytes | None]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Do what is asked until nobody asks any more."""
        while (frame := await self._framing.read()) is not None:
            match frame.kind:
                case "ask":
                    self._start(frame.call, self._ask(frame))
                case "open":
                    self._streams[frame.call] = asyncio.Queue()
                    self._start(frame.call, self._stream(frame))
                case "write" | "done" if frame.call in self._streams:
                    self._streams[frame.call].put_nowait(
                        frame.data if frame.kind == "write" else None
                    )
                case "cancel" if frame.call in self._tasks:
                    self._tasks[frame.call].cancel()
                case "close" if frame.channel in self._channels:
                    await self._channels.pop(frame.channel).close()
        for channel in self._channels.values():
            await channel.close()

    def _start(self, call: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(call, work))
        self._tasks[call] = task

    async def _guard(self, call: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except grpc.aio.AioRpcError as error:
            self._framing.write(_end(call, error))
        except asyncio.CancelledError:
            # Either the other side did it, or its channel was closed.
            self._framing.write(Frame("end", call, status="CANCELLED", text="closed"))
        except ValueError as error:
            # The files of TLS were replaced a moment ago.
            self._framing.write(Frame("end", call, status="UNAVAILABLE", text=str(error)))
        finally:
            del self._tasks[call]
            self._streams.pop(call, None)

    def _channel(self, frame: Frame) -> grpc.aio.Channel:
        known = self._channels.get(frame.channel)
        if known is None:
            options = msgspec.msgpack.decode(frame.text.encode("latin-1"))
            if frame.tls is None:
                known = grpc.aio.insecure_channel(frame.target, options=options)
            else:
                known = grpc.aio.secure_channel(
                    frame.target, credentials(of_paths(*frame.tls)), options=options
                )
            self._channels[frame.channel] = known
        return known

    async def _ask(self, frame: Frame) -> None:
        call: Any = self._channel(frame).unary_unary(frame.path)
        data = await call(frame.data, timeout=frame.timeout_s, metadata=frame.pairs or None)
        self._framing.write(Frame("answer", frame.call, data))

    async def _stream(self, frame: Frame) -> None:
        method: Any = self._channel(frame).stream_stream(frame.path)
        stream = method(metadata=frame.pairs or None)
        writer = asyncio.get_running_loop().create_task(_write(stream, self._streams[frame.call]))
        try:
            while (data := await stream.read()) is not grpc.aio.EOF:
                self._framing.write(Frame("frame", frame.call, data))
            self._framing.write(Frame("end", frame.call, status="OK"))
        finally:
            stream.cancel()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)


async def _write(stream: GrpcValue, queue: asyncio.Queue[bytes | None]) -> None:
    while (data := await queue.get()) is not None:
        # When it fails, whoever reads the stream is told why.
        await stream.write(data)
    await stream.done_writing()


def _end(call: int, error: grpc.aio.AioRpcError) -> Frame:
    pairs = list(error.trailing_metadata() or ())
    return Frame("end", call, status=error.code().name, text=error.details() or "", pairs=pairs)


async def _main(file_descriptor: int) -> None:
    with socket.socket(fileno=file_descriptor) as sock:
        reader, writer = await asyncio.open_connection(sock=sock)
        await Relay(Framing(reader, writer)).serve()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
