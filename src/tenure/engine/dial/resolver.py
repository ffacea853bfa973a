"""Looks up the addresses of a host."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from tenure.core import limits


class Resolver(Protocol):
    """Looks up the addresses of a name; injected, because tests own the names."""

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host as text; raise OSError if it has none."""
        ...

    def close(self) -> None:
        """End what look-ups need."""
        ...


class SystemResolver:
    """The resolver of this machine, in threads of its own.

    A look-up that hangs occupies a thread. Others of the server must not wait behind it.
    """

    def __init__(self) -> None:
        """Start threads only when they are needed."""
        self._threads = ThreadPoolExecutor(limits.DIAL_LOOKUPS_MAX, "tenure-resolver")

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host, in the order in which the system prefers them."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, host, port)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """Wait for no look-up that hangs."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(place[0]) for *_, place in found]
