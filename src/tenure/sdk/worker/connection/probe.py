"""The endpoint for probes of Kubernetes: two paths on the connection's own loop.

An answer shows that the connection's thread runs. That is all ``/livez`` checks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Protocol, Self

import msgspec

from tenure.sdk.transport.listening import stop_listening

READ_S: Final = 5.0
HEAD_BYTES_MAX: Final = 8 * 1024
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Snapshot(Protocol):
    """What a probe shows of a worker, as JSON."""

    @property
    def is_ready(self) -> bool:
        """Whether it is registered, has its lease, and is not draining."""
        ...


class Probe:
    """A server for GET and HEAD of ``/livez`` and ``/readyz``; every answer ends its connection."""

    def __init__(self, status: Callable[[], Snapshot]) -> None:
        """Use ``start`` instead."""
        self._status = status
        self._server: asyncio.Server | None = None

    @classmethod
    async def start(cls, address: tuple[str, int], status: Callable[[], Snapshot]) -> Self:
        """Listen on an address. Raises ``OSError`` if it is in use."""
        made = cls(status)
        host, port = address
        made._server = await asyncio.start_server(
            made._serve, host or None, port, limit=HEAD_BYTES_MAX
        )
        return made

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening."""
        assert self._server is not None
        await stop_listening(self._server)
        # Accepted connections are closed by their own coroutines. One turn frees the sockets.
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            with contextlib.suppress(OSError):
                writer.close()
                await writer.wait_closed()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3:  # noqa: PLR2004 (method, path and version)
            return _response(400, b"{}")
        method, path = words[0], words[1].split(b"?", 1)[0]
        status = self._status()
        body = msgspec.json.encode(status)
        if path not in {b"/livez", b"/readyz"}:
            return _response(404, b'{"error":"not_found"}')
        if method not in {b"GET", b"HEAD"}:
            return _response(405, b'{"error":"method_not_allowed"}')
        code = 200 if path == b"/livez" or status.is_ready else 503
        return _response(code, body, is_head=method == b"HEAD")


def _response(code: int, body: bytes, *, is_head: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {code} {_REASONS[code]}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    ).encode()
    return head if is_head else head + body
