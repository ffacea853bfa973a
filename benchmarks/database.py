"""The databases that are measured: how to open their store, and what is in them afterwards."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import apsw
import asyncpg

from benchmarks.statement import read_statements
from tenure.engine.clock import SystemClock
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Probe, Store

# In quotes: this class has type parameters in its stubs only.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

FIXTURE = read_statements("fixture_postgres.sql")


class Database(Protocol):
    """One database of either kind."""

    def store(self) -> Store:
        """Return a store on it that is not open yet."""
        ...

    async def count_finished(self) -> int:
        """Return how many tasks came to their end, as the database has it."""
        ...


@dataclass(frozen=True)
class SqliteDatabase:
    """A file, synchronous=FULL."""

    path: Path

    def store(self) -> SqliteStore:
        """Return a store on it that is not open yet."""
        return SqliteStore(str(self.path), clock=SystemClock().now_ms)

    async def count_finished(self) -> int:
        """Return how many tasks are in history."""
        connection = apsw.Connection(str(self.path))
        count = connection.execute("SELECT count(*) FROM history").get
        connection.close()
        assert isinstance(count, int)
        return count


@dataclass(frozen=True)
class PostgresDatabase:
    """A database of the benchmark's server."""

    dsn: str

    def store(self, probe: Probe | None = None) -> PostgresStore:
        """Return a store on it that is not open yet."""
        return PostgresStore(self.dsn, probe=probe)

    async def count_finished(self) -> int:
        """Return how many tasks are in history."""
        async with self.connect() as connection:
            count: int = await connection.fetchval("SELECT count(*) FROM history")
        return count

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Open a connection beside those of the store."""
        connection = await asyncpg.connect(self.dsn, server_settings={"jit": "off"})
        try:
            yield connection
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator[None]:
        """Keep a transaction open that has read, like a forgotten session or a slow report."""
        async with (
            self.connect() as connection,
            connection.transaction(isolation="repeatable_read"),
        ):
            await connection.fetchval("SELECT count(*) FROM tasks")
            yield


async def wal_position(connection: Connection) -> int:
    """Return how many bytes of write-ahead log the server has written."""
    position: int = await connection.fetchval(FIXTURE["wal_position"])
    return position


async def count_wal_images(connection: Connection) -> int:
    """Return how many images of whole pages the write-ahead log has."""
    await connection.execute(FIXTURE["flush_statistics"])
    count: int = await connection.fetchval(FIXTURE["count_wal_images"])
    return count
