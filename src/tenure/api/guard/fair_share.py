"""Places that many clients share, of which none can take all."""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from typing import Final

from tenure.core import limits

# What one subscriber of a network gets at least; its addresses are all of one client.
_IPV6_PREFIX: Final = 64


class SharedPlaces:
    """A bounded number of places, of which one client holds at most as many as are free.

    Alone it may hold half of them. The more clients there are, the fewer each may hold, so that
    there are some left for whoever comes next.
    """

    def __init__(self, most: int) -> None:
        """Start with nobody."""
        self._most = most
        self._held: Counter[str] = Counter()
        self.count = 0

    def has_room(self, client: str) -> bool:
        """Tell whether a client may take one more place."""
        return self._held[client] < limits.CLIENT_SHARE * (self._most - self.count)

    def take(self, client: str) -> None:
        """Take a place."""
        assert self.count < self._most
        self._held[client] += 1
        self.count += 1

    def leave(self, client: str) -> None:
        """Give a place back."""
        assert self._held[client] > 0
        self.count -= 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]


@functools.lru_cache(maxsize=limits.ADDRESSES_REMEMBERED_MAX)
def client_of(host: str) -> str:
    """Return what stands for the client at an address: of IPv6, its network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped:
        return host
    return str(ipaddress.ip_network((address.packed, _IPV6_PREFIX), strict=False))
