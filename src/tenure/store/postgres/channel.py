"""The side connection for notifications between replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from tenure.core.limits import CONNECT_SECONDS_MAX

Connection = asyncpg.Connection


async def close_connection(connection: Connection | PoolConnectionProxy) -> None:
    """Close the connection; a stopped backend gets no goodbye."""
    try:
        await connection.close(timeout=CONNECT_SECONDS_MAX)
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


class NotifyChannel:
    """Listens and notifies. A lost connection is made again; until then the engine polls."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        """Store how to connect; the name is set before the first use."""
        self._connect = connect
        self.name = ""
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._sending = asyncio.Lock()
        self.callback: Callable[[str], None] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the connection exists, as far as this side knows."""
        return self._connection is not None and not self._connection.is_closed()

    async def open(self) -> None:
        """Connect and listen, if not connected."""
        await self._ready()

    async def close(self) -> None:
        """Stop listening."""
        async with self._lock:
            if self._connection is not None:
                await close_connection(self._connection)
                self._connection = None

    def drop(self) -> None:
        """Close the connection to an outdated host; the next check connects again."""
        if self._connection is not None:
            self._connection.terminate()

    async def send(self, statement: str, payloads: Sequence[str]) -> None:
        """Notify all replicas; a call after a failure also listens again.

        One after the other, for a while: a slow one must not fail the next.
        """
        async with asyncio.timeout(CONNECT_SECONDS_MAX), self._sending:
            connection = await self._ready()
            await connection.execute(statement, payloads, self.name)

    async def _ready(self) -> Connection:
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
                await self._connection.add_listener(self.name, self._hear)
            return self._connection

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        del channel
        own = isinstance(connection, asyncpg.Connection) and connection.get_server_pid() == pid
        if self.callback is not None and not own:
            self.callback(str(payload))
