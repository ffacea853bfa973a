"""Server-sent events as an answer: the head, then events while the client reads them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tenure.api.http.edge.reading import while_connected
from tenure.api.http.operation import RequestContext


class ServerSentEvents(Response):
    """An answer that goes on; the number at a time is limited, also for each caller."""

    media_type = "text/event-stream"

    def __init__(self, context: RequestContext, caller: str) -> None:
        """Prevent caching and buffering by proxies."""
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._context = context
        self._caller = caller

    def events(self) -> AsyncGenerator[bytes, None]:
        """Return what is sent, each item as one write; the end ends the answer."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end, until the client disconnects or until the server stops."""
        with self._context.allowance.streams.place(self._caller), self._context.streams:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            if scope["method"] != "HEAD":
                await while_connected(receive, self._send_all(send))
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self.events()) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
