"""Sends signed messages to endpoints: the seam of the engine to the network."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from tenure.api.http.delivery import envelope
from tenure.api.http.delivery.http_post import BadReply, Reply, post
from tenure.core.address import AllowList, HttpUrl, read_address, read_url
from tenure.core.endpoint import signature, verdict
from tenure.core.endpoint.record import Endpoint
from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.core.limits import ENDPOINT_TIMEOUT_MS
from tenure.core.task import callback_token
from tenure.core.task.record import Task
from tenure.engine.dial.dialer import Dialer, DialFailure
from tenure.errors import InvalidArgument, WrongState

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

_LOCAL: Final = AllowList.parse(["127.0.0.0/8", "::1"], "endpoint-allow")
_LOCAL_NAME: Final = "localhost"


class EndpointPoster:
    """Posts to endpoints over connections to checked addresses."""

    def __init__(
        self, engine: Engine, dialer: Dialer, *, allowed: AllowList, base_url: str, is_public: bool
    ) -> None:
        """Send ``base_url`` as the address for callbacks; ``is_public`` if an operator named it."""
        self._engine = engine
        self._dialer = dialer
        self._allowed = allowed
        self._base_url = base_url
        self._is_public = is_public
        self._tls = ssl.create_default_context()

    async def check(self, url: str) -> None:
        """Refuse a URL that this server would not connect to."""
        target = read_url(url, "url").check(self._allowed, "url")
        if not self._is_public and not _is_local(target):
            message = (
                "This server does not know under which URL endpoints reach it. Start it with "
                "--callback-url, or use an endpoint on this machine."
            )
            raise WrongState(message, state="NO_CALLBACK_URL")
        try:
            await self._dialer.addresses(target.host, target.port, target.rule(self._allowed))
        except DialFailure:
            # The same answer whether the name is unknown or private: nobody learns of either.
            message = "url must have a host with public addresses, or ones that the server allows"
            raise InvalidArgument(message, field="url") from None

    async def post(self, endpoint: Endpoint, task: Task) -> Delivery:
        """Send the envelope of an attempt once."""
        tokens = self._engine.tokens
        claims = callback_token.claims(task, tokens.now_ms)
        body = envelope.envelope(
            task, claims=claims, token=tokens.sign(claims), base_url=self._base_url
        )
        return await self._send(
            endpoint, f"{task.id}:{task.attempt}", body, endpoint.spec.timeout_ms
        )

    async def ping(self, endpoint: Endpoint) -> Delivery:
        """Send a message without a task."""
        message_id = f"ping:{self._engine.clock.new_id()}"
        body = envelope.ping(endpoint.id, endpoint.name, self._engine.tokens.now_ms)
        timeout_ms = min(endpoint.spec.timeout_ms, ENDPOINT_TIMEOUT_MS)
        return await self._send(endpoint, message_id, body, timeout_ms)

    def close(self) -> None:
        """Each POST has a connection of its own: nothing is kept."""

    async def _send(
        self, endpoint: Endpoint, message_id: str, body: bytes, timeout_ms: int
    ) -> Delivery:
        clock, now_ms = self._engine.clock, self._engine.tokens.now_ms
        begun_ms = clock.monotonic_ms()
        signed = signature.headers(endpoint.live_secrets(now_ms), message_id, now_ms // 1000, body)
        headers = {**endpoint.spec.headers, **signed}
        error = ""
        reply: Reply | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                reply = await self._exchange(endpoint, headers, body)
        except TimeoutError:
            error = f"The endpoint did not answer within {timeout_ms} ms."
        except (DialFailure, BadReply) as failure:
            error = str(failure)
        except InvalidArgument:
            error = "The URL is not allowed by this server any more."
        except OSError:
            error = "The connection was lost."
        took_ms = clock.monotonic_ms() - begun_ms
        if reply is None:
            return Delivery(verdict=Verdict.FAILED, error=error, took_ms=took_ms)
        return verdict.answered(
            reply.status, reply.retry_after, now_ms=self._engine.tokens.now_ms, took_ms=took_ms
        )

    async def _exchange(self, endpoint: Endpoint, headers: dict[str, str], body: bytes) -> Reply:
        url = read_url(endpoint.spec.url, "url").check(self._allowed, "url")
        tls = self._tls if url.is_https else None
        streams = await self._dialer.open(url.host, url.port, url.rule(self._allowed), tls)
        return await post(streams, url, headers, body)


def _is_local(url: HttpUrl) -> bool:
    address = read_address(url.host)
    if address is None:
        return url.host == _LOCAL_NAME
    return any(address in each for each in _LOCAL.networks)
