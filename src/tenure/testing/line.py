"""The way of one client or worker to the server of a test, with the faults of a network.

It knows the frames of HTTP/2 well enough to lose exactly an answer: the server has done what was
asked, its answer arrived here, and then the connection is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from tenure.sdk.transport.listening import stop_listening

_FRAME_HEADER_BYTES: Final = 9
_CHUNK_BYTES: Final = 65_536
_DATA_FRAME: Final = 0
_HEADERS_FRAME: Final = 1
_END_OF_STREAM: Final = 1


class ClientLine:
    """Listens on a port of its own and passes everything on, as long as the test lets it."""

    def __init__(self, host: str, port: int) -> None:
        """Lead to a server; ``open`` listens."""
        self._upstream = (host, port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._replies_to_lose = 0
        self.is_dead = False

    async def open(self) -> str:
        """Listen, and return where."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    async def close(self) -> None:
        """Cut everything and listen no longer."""
        assert self._server is not None
        await stop_listening(self._server)
        self.kill()
        await asyncio.gather(*self._serving, return_exceptions=True)
        # An aborted transport closes its socket in the next turn of the loop.
        await asyncio.sleep(0)

    def kill(self) -> None:
        """Cut all connections on both sides, and let none come about again."""
        self.is_dead = True
        self._passing.set()
        for writer in list(self._writers):
            writer.transport.abort()

    def block(self) -> None:
        """Let nothing pass in either direction; connections stay, and nobody hears of an end."""
        self._passing.clear()

    def unblock(self) -> None:
        """Let everything pass again, what was held back first."""
        self._passing.set()

    def lose_next_reply(self) -> None:
        """Lose the next answer of the server, and the connection with it."""
        self._replies_to_lose += 1

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._passing.wait()
            if not self.is_dead:
                await self._connect(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            return
        self._writers.add(up_writer)
        directions = [
            asyncio.ensure_future(self._pass_up(reader, up_writer)),
            asyncio.ensure_future(self._pass_down(up_reader, writer)),
        ]
        try:
            # The first end ends both; while nothing passes, an end does not pass either.
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            await self._passing.wait()
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            self._writers.discard(up_writer)
            up_writer.transport.abort()

    async def _pass_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._send(writer, data)

    async def _pass_down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered: set[bytes] = set()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                header = await reader.readexactly(_FRAME_HEADER_BYTES)
                body = await reader.readexactly(int.from_bytes(header[:3], "big"))
                if _is_answer(header, answered) and self._replies_to_lose:
                    self._replies_to_lose -= 1
                    return
                await self._send(writer, header + body)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        await self._passing.wait()
        writer.write(data)
        await writer.drain()


def _is_answer(header: bytes, answered: set[bytes]) -> bool:
    """Tell whether a frame is a message, or the refusal of a call that had none."""
    stream = header[5:]
    if header[3] == _DATA_FRAME:
        answered.add(stream)
        return True
    is_end = header[3] == _HEADERS_FRAME and bool(header[4] & _END_OF_STREAM)
    return is_end and stream not in answered
