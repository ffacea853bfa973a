"""Checks where served workers want to be called: at their own host, or where operators allow it."""

from __future__ import annotations

import ipaddress

from tenure.core.address import AllowList, IPAddress
from tenure.core.seat.place import ServedPlace, read_place
from tenure.engine.dial.dialer import Dialer, DialFailure
from tenure.errors import InvalidArgument


class ServedAddresses:
    """Looks up and checks addresses of served workers."""

    def __init__(self, dialer: Dialer, allowed: AllowList) -> None:
        """Allow the networks and names of the operator besides the host that registers."""
        self._dialer = dialer
        self._allowed = allowed

    async def check(self, text: str, caller: str) -> None:
        """Refuse an address that may not be called for a worker that registers from a host."""
        place = read_place(text)
        try:
            await self.find(place, caller)
        except DialFailure as failure:
            message = (
                f"address {text}: {failure} It has to be the host from which the worker registers, "
                "or allowed by the server's --served-allow."
            )
            raise InvalidArgument(message, field="address") from failure

    async def find(self, place: ServedPlace, caller: str) -> IPAddress:
        """Return the checked address to connect to; raise ``DialFailure`` if there is none."""
        rule = place.rule(_plain(caller), self._allowed)
        found = await self._dialer.addresses(place.host, place.port, rule)
        if not found:
            raise DialFailure("name", f"The name {place.host} has no address.")
        return found[0]


def _plain(caller: str) -> str:
    """Return the IPv4 address of a caller that a socket for both protocols shows as IPv6."""
    try:
        address = ipaddress.ip_address(caller)
    except ValueError:
        return caller
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
