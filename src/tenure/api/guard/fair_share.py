"""Places that many clients share; no client can take all of them."""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from typing import Final

from tenure.core import limits

# The smallest network of one subscriber; all its addresses count as one client.
_IPV6_PREFIX: Final = 64


class SharedPlaces:
    """A bounded number of places, of which one client holds at most as many as are free.

    The first client may hold half of them. With more clients each may hold fewer, so that there are
    always some left for the next one.
    """

    def __init__(self, most: int) -> None:
        """Start without clients."""
        self._most = most
        self._held: Counter[str] = Counter()
        self.count = 0

    def has_room(self, client: str) -> bool:
        """Return whether a client may take one more place."""
        return self._held[client] < limits.CLIENT_SHARE * (self._most - self.count)

    def take(self, client: str) -> None:
        """Take a place."""
        assert self.count < self._most
        self._held[client] += 1
        self.count += 1

    def leave(self, client: str) -> None:
        """Release a place."""
        assert self._held[client] > 0
        self.count -= 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]


@functools.lru_cache(maxsize=limits.ADDRESSES_REMEMBERED_MAX)
def client_of(host: str) -> str:
    """Return the key of the client at an address: for IPv6, its network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped:
        return host
    return str(ipaddress.ip_network((address.packed, _IPV6_PREFIX), strict=False))
