"""Looks up, checks and connects: the checked address is the one that is connected to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeAlias

from tenure.core import limits
from tenure.core.address import AddressRule, IPAddress, read_address
from tenure.engine.dial.resolver import Resolver

Reason: TypeAlias = Literal["refused", "name", "connection", "tls", "timeout"]
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class DialFailure(Exception):
    """A connection that was not made, with the reason as one word."""

    def __init__(self, reason: Reason, message: str) -> None:
        """Name the reason; the message is for the operator."""
        self.reason: Reason = reason
        super().__init__(message)


class Place(NamedTuple):
    """Where a connection goes: a checked address. With TLS its certificate must be of the host."""

    address: IPAddress
    port: int
    host: str
    tls: ssl.SSLContext | None


# Injected, so that a test can see each connection.
Connector: TypeAlias = Callable[[Place], Awaitable[Streams]]


async def connect(place: Place) -> Streams:
    """Open a TCP connection, with TLS if there is a context."""
    return await asyncio.open_connection(
        str(place.address),
        place.port,
        ssl=place.tls,
        server_hostname=None if place.tls is None else place.host,
        limit=limits.DIAL_BUFFER_BYTES,
    )


class Dialer:
    """Makes connections to hosts that somebody else has chosen."""

    def __init__(self, resolver: Resolver, connector: Connector = connect) -> None:
        """Take the resolver and what opens connections."""
        self._resolver = resolver
        self._connect = connector

    async def addresses(self, host: str, port: int, rule: AddressRule) -> list[IPAddress]:
        """Return the addresses of a host, which the rule allows without exception.

        A name with one address that is not allowed is refused as a whole: an honest name never
        points both to the internet and into a private network.
        """
        found: list[IPAddress] = []
        for text in await self._look_up(host, port):
            address = read_address(text)
            if address is None or not rule(address):
                raise DialFailure("refused", f"An address of {host} is not allowed.")
            found.append(address)
        return found[: limits.DIAL_ADDRESSES_MAX]

    async def open(
        self, host: str, port: int, rule: AddressRule, tls: ssl.SSLContext | None
    ) -> Streams:
        """Connect to the first address of a host that answers."""
        failure = DialFailure("connection", f"{host} has no address.")
        try:
            async with asyncio.timeout(limits.DIAL_CONNECT_MS / 1000):
                for address in await self.addresses(host, port, rule):
                    try:
                        return await self._open(Place(address, port, host, tls))
                    except DialFailure as error:
                        failure = error
        except TimeoutError:
            raise DialFailure("timeout", f"No connection to {host} in time.") from None
        raise failure

    async def _open(self, place: Place) -> Streams:
        host = place.host
        try:
            reader, writer = await self._connect(place)
        except ssl.SSLError as error:
            raise DialFailure("tls", f"TLS with {host} failed: {error.reason}.") from error
        except OSError as error:
            raise DialFailure("connection", f"{host} cannot be reached.") from error
        peer = writer.get_extra_info("peername")
        if peer is None or read_address(str(peer[0])) != place.address:
            writer.close()
            raise DialFailure("refused", f"The connection to {host} went elsewhere.")
        return reader, writer

    async def _look_up(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host as text; an address is its own."""
        if read_address(host) is not None:
            return [host]
        try:
            async with asyncio.timeout(limits.DIAL_LOOKUP_MS / 1000):
                return await self._resolver.addresses(host, port)
        except TimeoutError:
            raise DialFailure("name", f"No answer about the name {host} in time.") from None
        except (OSError, UnicodeError) as error:
            raise DialFailure("name", f"The name {host} has no address.") from error
