"""One POST over a connection of its own: HTTP/1.1 by h11, no redirects, no proxies, no cookies."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import h11

from tenure.core import limits
from tenure.core.address import HttpUrl
from tenure.engine.dial.dialer import Streams

_READ_BYTES: Final = 16_384


class Reply(NamedTuple):
    """What is kept of a reply."""

    status: int
    retry_after: str | None


class BadReply(Exception):
    """The reply is not HTTP, is too large, or ends too early."""


async def post(streams: Streams, url: HttpUrl, headers: dict[str, str], body: bytes) -> Reply:
    """Send a request and read its reply, of which only the head is kept."""
    reader, writer = streams
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.HTTP_HEAD_BYTES_MAX)
    given = {name.lower() for name in headers}
    own = {
        "host": url.authority,
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        "user-agent": "tenure",
    }
    lines = [(name, value) for name, value in own.items() if name not in given]
    request = h11.Request(method="POST", target=url.target, headers=[*lines, *headers.items()])
    try:
        writer.write((connection.send(request) or b"") + (connection.send(h11.Data(body)) or b""))
        connection.send(h11.EndOfMessage())
        await writer.drain()
        return await _read(reader, connection)
    except h11.RemoteProtocolError as error:
        raise BadReply(f"The reply is not HTTP: {error}.") from error
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, connection: h11.Connection) -> Reply:
    """Return the head of the reply; its body is read to its end or its limit, and dropped."""
    reply: Reply | None = None
    seen = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_READ_BYTES)
            seen += len(data)
            if seen > limits.ENDPOINT_REPLY_BYTES_MAX:
                raise BadReply("The reply is larger than 64 KiB.")
            if not data:
                # What was said before still counts: its status is known.
                return _known(reply)
            connection.receive_data(data)
        elif isinstance(event, h11.Response):
            retry_after = next((v for n, v in event.headers if n == b"retry-after"), None)
            text = None if retry_after is None else retry_after.decode("latin-1")
            reply = Reply(event.status_code, text)
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return _known(reply)


def _known(reply: Reply | None) -> Reply:
    if reply is None:
        raise BadReply("The connection was closed without a reply.")
    return reply
