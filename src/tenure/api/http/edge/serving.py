"""uvicorn as Tenure runs it: h11, without its signal handling, with a deadline for heads.

uvicorn waits for the rest of a request line without a limit, and answers invalid HTTP with plain
text. Here a head has a deadline, and every refusal is typed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import Any, Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from tenure.api.http.edge.error import JSON, error_body
from tenure.core import limits
from tenure.errors import DeadlineExceeded, InvalidArgument, PayloadTooLarge, TenureError

_BAD_REQUEST: Final = 400
_SLOW: Final = 408
_TOO_LARGE: Final = 431
_TICK_S: Final = 1.0
# How long a connection stays when the client does not confirm the end of its TLS.
_GOODBYE_S: Final = 1.0


class Protocol(H11Protocol):
    """One connection of a client."""

    head_ms = limits.HTTP_HEAD_MS
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the first head."""
        super().connection_made(cast("asyncio.Transport", transport))
        # asyncio leaves Nagle's algorithm on for sockets that were opened without a protocol
        # number; it would delay the body by 40 ms, until the client acknowledges the head.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in received data; an incomplete head starts its deadline."""
        if self._is_turned_away(data):
            self._stop_watching()
            return
        super().data_received(data)
        self._watch_head()

    def _is_turned_away(self, data: bytes) -> bool:
        """Answer a request that the application refuses before it is read, in a few microseconds.

        Refusing must cost far less than doing: otherwise a server at three times its capacity would
        spend all its time on refusals.
        """
        turn_away = getattr(self.app, "turn_away", None)
        is_first = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if turn_away is None or not is_first or not self._is_between:
            return False
        answer: bytes | None = turn_away(data)
        if answer is None or self.transport.is_closing():
            return False
        self.transport.write(answer)
        # As after any other answer: the connection may now be idle for some time.
        self.on_response_complete()
        return True

    @property
    def _is_between(self) -> bool:
        """Return whether no request is being answered: data that comes now belongs to the next one.

        It may also be the rest of a refused body. That is read and dropped for some time: if the
        socket were closed at once, the answer would be lost.
        """
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _watch_head(self) -> None:
        if self.transport.is_closing() or not self._is_between:
            self._stop_watching()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_ms / 1000, self._give_up)

    def _stop_watching(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self._is_between or self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            self._refuse(_SLOW, DeadlineExceeded("The head of the request did not arrive in time."))
        else:
            self.transport.close()

    def _should_upgrade(self) -> bool:
        """Ignore a request for another protocol, as HTTP allows; uvicorn would log advice."""
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP; uvicorn calls this while it handles the error of h11."""
        complaint = sys.exception()
        if getattr(complaint, "error_status_hint", _BAD_REQUEST) == _TOO_LARGE:
            self._refuse(_TOO_LARGE, PayloadTooLarge(limit=limits.HTTP_HEAD_BYTES_MAX))
        else:
            self._refuse(_BAD_REQUEST, InvalidArgument(msg, field="request"))

    def _refuse(self, status: int, error: TenureError) -> None:
        body = error_body(error)
        headers = [
            ("content-type", JSON),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        # A client that broke off in the middle of an answer gets no other one.
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def http_config(app: ASGIApp, *, grace_s: float) -> uvicorn.Config:
    """Return the uvicorn settings of the edge; open requests get ``grace_s`` when it stops."""
    options: dict[str, Any] = {
        "http": Protocol,
        "ws": "none",
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "proxy_headers": False,
        "h11_max_incomplete_event_size": limits.HTTP_HEAD_BYTES_MAX,
        "timeout_keep_alive": limits.HTTP_IDLE_MS // 1000,
        # uvicorn documents whole seconds but accepts any number.
        "timeout_graceful_shutdown": grace_s,
    }
    return uvicorn.Config(app, **options)


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling: the process decides when it stops."""

    def __init__(self, config: uvicorn.Config, *, tls: ssl.SSLContext | None = None) -> None:
        """Prepare; ``serve`` runs until ``stop``."""
        super().__init__(config)
        self._tls = tls
        self._stopping = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; for TLS here, because uvicorn gives each handshake a minute."""
        if self._tls is None:
            await super().startup(sockets)
            return
        await super().startup([])
        for each in sockets or ():
            server = await asyncio.get_running_loop().create_server(
                self._make_protocol,
                sock=each,
                ssl=self._tls,
                ssl_handshake_timeout=limits.TLS_HANDSHAKE_MS / 1000,
                ssl_shutdown_timeout=_GOODBYE_S,
                backlog=self.config.backlog,
            )
            self.servers.append(server)

    def _make_protocol(self) -> Protocol:
        return Protocol(self.config, self.server_state, self.lifespan.state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals."""
        yield

    def stop(self) -> None:
        """Accept no more connections, let open requests end, and let ``serve`` return."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Keep the date of the answers right until the server stops."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._stopping.wait()
