"""A proxy between a worker or client and a server, with the faults of a network.

It knows the frames of HTTP/2 well enough to lose exactly an answer: the server has done its work,
its answer arrived here, and then the connection is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final, Self

from tenure.sdk.transport.listening import stop_listening

FRAME_HEADER_BYTES: Final = 9
CHUNK_BYTES: Final = 65_536
DATA_FRAME: Final = 0
HEADERS_FRAME: Final = 1
END_OF_STREAM: Final = 1


class Proxy:
    """Listens on a port of its own and passes everything on to ``target``, which may change."""

    def __init__(self, target: str, *, seed: int = 1) -> None:
        self.target = target
        self.delay_s = 0.0
        # The share of answers that are lost.
        self.loss = 0.0
        # While it is set, nothing of what the server says arrives.
        self.is_muted = False
        self.answer_count = 0
        self.lost_count = 0
        self.connection_count = 0
        self._chance = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        self.cut()
        await asyncio.gather(*self._serving, return_exceptions=True)
        # An aborted transport closes its socket in the next turn of the loop.
        await asyncio.sleep(0)

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Cut all connections, on both sides at once; new ones are accepted."""
        for writer in list(self._open):
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._connect(reader, writer)
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return
        self.connection_count += 1
        self._open.add(up_writer)
        # A network has no half-closed connections worth keeping: the first end ends both.
        directions = [
            asyncio.ensure_future(self._pass_up(reader, up_writer)),
            asyncio.ensure_future(self._pass_down(up_reader, writer)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            self._open.discard(up_writer)
            up_writer.transport.abort()

    async def _pass_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._send(writer, data)

    async def _pass_down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered: set[bytes] = set()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                header = await reader.readexactly(FRAME_HEADER_BYTES)
                body = await reader.readexactly(int.from_bytes(header[:3], "big"))
                if _is_answer(header, answered):
                    self.answer_count += 1
                    if self.is_muted or self._chance.random() < self.loss:
                        self.lost_count += 1
                        if not self.is_muted:
                            return
                if not self.is_muted:
                    await self._send(writer, header + body)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        writer.write(data)
        await writer.drain()


def _is_answer(header: bytes, answered: set[bytes]) -> bool:
    """Tell whether a frame is a message, or the refusal of a call that had none."""
    stream = header[5:]
    if header[3] == DATA_FRAME:
        answered.add(stream)
        return True
    is_end = header[3] == HEADERS_FRAME and bool(header[4] & END_OF_STREAM)
    return is_end and stream not in answered
