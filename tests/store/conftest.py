"""Opened stores, each on a database of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Store
from tests.postgres import PostgresServer
from tests.store.rows import NOW

_numbers = itertools.count(1)
_TABLES = (
    "namespaces",
    "queues",
    "tasks",
    "history",
    "attempts",
    "journal",
    "groups",
    "closings",
    "idempotency_keys",
    "schedules",
    "schedule_counts",
    "fires",
    "workers",
    "leases",
    "servers",
    "secrets",
    "api_keys",
    "audit",
    "worker_changes",
    "statistics",
)
_EMPTY = "".join(
    [
        *(f"DELETE FROM {table};" for table in _TABLES),
        "DELETE FROM schema_migrations WHERE number >= 900;",
        "SELECT drop_day_partitions(1000000000);",
        "SELECT drop_journal_partitions(1000000000);",
    ]
)


@pytest.fixture(scope="session")
def template(postgres: PostgresServer) -> str:
    """Return a migrated database, of which each test gets a copy."""
    name = postgres.create_database()
    asyncio.run(_migrate(postgres.dsn(name)))
    return name


async def _migrate(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.open()
    await store.close()


@pytest.fixture(scope="session")
def emptied() -> list[str]:
    """Return the databases that earlier tests have emptied behind them."""
    return []


@pytest.fixture
async def fresh_dsn(postgres: PostgresServer, template: str) -> AsyncIterator[str]:
    """Return the URL of a database that no other test has seen."""
    name = await _copy(postgres, template)
    yield postgres.dsn(name)
    postgres.drop_database(name)


@pytest.fixture
async def dsn(postgres: PostgresServer, template: str, emptied: list[str]) -> AsyncIterator[str]:
    """Return the URL of a migrated database without rows; making each anew takes too long."""
    name = emptied.pop() if emptied else await _copy(postgres, template)
    yield postgres.dsn(name)
    connection = await asyncpg.connect(postgres.dsn(name))
    # Dropping partitions waits a second, no longer; one that autovacuum holds spoils the database.
    with contextlib.suppress(asyncpg.LockNotAvailableError):
        await connection.execute(_EMPTY)
        emptied.append(name)
    await connection.close()


async def _copy(postgres: PostgresServer, template: str) -> str:
    name = f"tenure_store_{next(_numbers)}"
    admin = await asyncpg.connect(postgres.dsn())
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    finally:
        await admin.close()
    return name


@pytest.fixture
async def postgres_store(dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "tenure.db"), clock=lambda: NOW, synchronous="OFF")
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    """Return an opened store: every test that takes it runs on both databases."""
    opened: Store = request.getfixturevalue(f"{request.param}_store")
    return opened
