"""An endpoint on a socket of this machine: every request that comes, and what it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


class Request:
    """One request as it arrived."""

    def __init__(self, line: str, headers: dict[str, str], body: bytes) -> None:
        self.line = line
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Answers each request with the bytes that a test wants."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], bytes] = lambda _: ok(202)
        self.port = 0
        self.hang = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (each.partition(": ") for each in rest)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(line, headers, body)
        self.requests.append(request)
        if self.hang:
            await reader.read()
        else:
            writer.write(self.answer(request))
            await writer.drain()
        writer.close()


def ok(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made
