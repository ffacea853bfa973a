"""A client of HTTP/2 that can stop in the middle of a gRPC message, which no gRPC client does.

It speaks the few frames that it takes: headers that are not indexed, data within the windows that
the server gives, and the end of a stream. What an answer says is not read, only that it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from typing import Final, Self

_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_HEAD_BYTES: Final = 9
_INITIAL_WINDOW: Final = 4
_STREAMS: Final = 3
_FRAME_BYTES: Final = 16_384
_ZEROS: Final = bytes(_FRAME_BYTES)


class Call:
    """One stream: what it may still send, and whether the server has ended it."""

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        self.window = window
        self.sent = 0
        self.has_answer = False
        self.is_over = asyncio.Event()
        self._began_s = time.monotonic()
        self.took_s = 0.0

    def end(self) -> None:
        """Note that the server has ended it, or its connection."""
        if not self.is_over.is_set():
            self.took_s = time.monotonic() - self._began_s
            self.is_over.set()


class RawConnection:
    """One connection and its calls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._window = 65_535
        self._stream_window = 65_535
        self._numbers = iter(range(1, 2**31, 2))
        self._moved = asyncio.Event()
        self._is_set_up = asyncio.Event()
        self.streams_max = 2**31
        self.calls: dict[int, Call] = {}
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, address: str) -> Self:
        host, _, port = address.rpartition(":")
        made = cls(*await asyncio.open_connection(host, int(port)))
        made._writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0))
        await made._is_set_up.wait()
        return made

    @property
    def is_over(self) -> bool:
        return self._reading.done()

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def call(self, path: str, **headers: str) -> Call:
        """Begin a call: only its headers are sent."""
        call = Call(next(self._numbers), self._stream_window)
        self.calls[call.number] = call
        head = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            **headers,
        }
        block = b"".join(_literal(name, value) for name, value in head.items())
        self._writer.write(_frame(_HEADERS, _END_HEADERS, call.number, block))
        return call

    async def send_unfinished(self, call: Call, size: int) -> None:
        """Announce a message of this size, and send all of it but its last byte.

        It goes as fast as the server takes it, until the call is over.
        """
        head = struct.pack(">BI", 0, size)
        left = len(head) + size - 1
        while left and not call.is_over.is_set() and not self.is_over:
            part = min(left, call.window, self._window, _FRAME_BYTES)
            if part <= len(head):
                self._moved.clear()
                await self._moved.wait()
                continue
            self._send(call, head + _ZEROS[: part - len(head)])
            head = b""
            left -= part
            await self._writer.drain()

    def _send(self, call: Call, data: bytes) -> None:
        self._writer.write(_frame(_DATA, 0, call.number, data))
        call.window -= len(data)
        self._window -= len(data)
        call.sent += len(data)

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(_HEAD_BYTES)
                body = await self._reader.readexactly(int.from_bytes(head[:3]))
                kind, flags, number = struct.unpack(">BBI", head[3:])
                self._take(kind, flags, number, body)
        except (asyncio.IncompleteReadError, OSError):
            """The server has closed the connection."""
        finally:
            for call in self.calls.values():
                call.end()
            self._moved.set()

    def _take(self, kind: int, flags: int, number: int, body: bytes) -> None:
        call = self.calls.get(number)
        if kind == _WINDOW:
            size = int.from_bytes(body)
            if call is not None:
                call.window += size
            elif number == 0:
                self._window += size
            self._moved.set()
        elif kind == _SETTINGS and not flags & _ACK:
            self._set_up(body)
            self._writer.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._writer.write(_frame(_PING, _ACK, 0, body))
        elif call is not None and (kind == _RST or (kind == _HEADERS and flags & _END_STREAM)):
            call.has_answer |= kind == _HEADERS
            call.end()
            self._moved.set()

    def _set_up(self, body: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", body):
            if name == _INITIAL_WINDOW:
                for call in self.calls.values():
                    call.window += value - self._stream_window
                self._stream_window = value
            elif name == _STREAMS:
                self.streams_max = value
        self._is_set_up.set()
        self._moved.set()


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _literal(name: str, value: str) -> bytes:
    """Return a header that is not indexed."""
    assert len(value) < 127
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
