"""A backend of PostgreSQL that stands still: its lane goes on without it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncpg
import pytest

from tenure.store.failure import Blocked, Lost
from tenure.store.postgres import PostgresStore
from tenure.store.table import task as task_table
from tenure.store.transaction import LaneName, Tx
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.postgres import PostgresServer
from tests.store.rows import insert, live, pending

WRITERS = (
    "SELECT pid FROM pg_locks WHERE relation = 'tasks'::regclass AND mode = 'RowExclusiveLock' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
LANES = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


@contextmanager
def paused(pids: list[int]) -> Iterator[None]:
    """Let processes stand still."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
async def admin(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """Another connection to the database."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def pids_of(connection: asyncpg.Connection, sql: str) -> list[int]:
    return [row["pid"] for row in await connection.fetch(sql)]


@pytest.fixture(params=[False, True], ids=["direct", "pooled"])
async def hasty(
    request: pytest.FixtureRequest, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresStore]:
    """A store whose lanes have little patience."""
    monkeypatch.setattr("tenure.store.postgres.store.LANE_SECONDS_MAX", 1.5)
    monkeypatch.setattr("tenure.store.postgres.store.LOCK_WAIT_MS", 300)
    store = PostgresStore(dsn, pooled=request.param)
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def stuck(store: PostgresStore, admin: asyncpg.Connection) -> AsyncIterator[list[int]]:
    """Pause the backend of the work lane in the middle of a transaction that has inserted a row."""
    pids: list[int] = []

    async def body(tx: Tx) -> None:
        await task_table.insert_tasks(tx, [pending(1)])
        pids.extend(await pids_of(admin, WRITERS))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await task_table.insert_tasks(tx, [pending(2)])

    try:
        with pytest.raises(Lost) as failure:
            async with asyncio.timeout(WAIT_S):
                await store.transaction(body)
        assert failure.value.reason == "store_slow"
        assert len(pids) == 1
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def gone(admin: asyncpg.Connection, pids: list[int]) -> None:
    """Wait until backends have ended."""

    async def are_gone() -> bool:
        return not set(pids) & set(await pids_of(admin, LANES))

    await eventually(are_gone)


async def test_a_lane_goes_on_with_a_new_connection_when_its_backend_stands_still(
    hasty: PostgresStore, admin: asyncpg.Connection
) -> None:
    async with stuck(hasty, admin) as pids:
        await insert(hasty, pending(3))
        assert await hasty.transaction(lambda tx: tx.now_ms(), LaneName.HEARTBEAT) > 0
    await gone(admin, pids)
    assert await live(hasty, 1, 2, 3) == [pending(3)]
    await insert(hasty, pending(1))


async def test_rows_that_a_paused_backend_keeps_are_not_waited_for_without_end(
    hasty: PostgresStore, admin: asyncpg.Connection
) -> None:
    async with stuck(hasty, admin) as pids:
        for _ in range(2):
            with pytest.raises(Blocked):
                await insert(hasty, pending(1))
        await insert(hasty, pending(3))
    await gone(admin, pids)
    await insert(hasty, pending(1))


async def test_a_single_statement_has_the_deadline_of_its_lane_too(
    hasty: PostgresStore, admin: asyncpg.Connection
) -> None:
    await hasty.look("next_due", [()])
    pids = await pids_of(admin, LANES)
    with paused(pids), pytest.raises(Lost):
        async with asyncio.timeout(WAIT_S):
            await hasty.look("next_due", [()])
    await insert(hasty, pending(3))


async def test_a_backend_that_was_left_is_ended_as_soon_as_it_runs_again(
    postgres: PostgresServer, dsn: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.postgres.store.LANE_SECONDS_MAX", 1.5)
    store = PostgresStore(dsn)
    await store.open()
    try:
        async with stuck(store, admin) as pids:
            await insert(store, pending(3))
        await gone(admin, pids)
        ended = f"[{pids[0]}] FATAL:  terminating connection due to administrator command"
        assert ended in postgres.log
    finally:
        await store.close()


async def test_a_store_is_closed_though_its_backends_stand_still(
    dsn: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.postgres.channel.CONNECT_SECONDS_MAX", 0.3)
    monkeypatch.setattr("tenure.store.postgres.store.CONNECT_SECONDS_MAX", 0.3)
    store = PostgresStore(dsn)
    await store.open()
    await insert(store, pending(1))
    await live(store, 1)
    with paused(await pids_of(admin, LANES)):
        async with asyncio.timeout(WAIT_S):
            await store.close()


async def test_servers_that_start_together_wait_for_a_long_migration(
    dsn: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.postgres.store.LANE_SECONDS_MAX", 0.2)
    monkeypatch.setattr("tenure.store.postgres.store.LOCK_WAIT_MS", 50)
    store = PostgresStore(dsn)
    async with admin.transaction():
        await admin.execute("SELECT pg_advisory_xact_lock(724913864)")
        opening = asyncio.create_task(store.open())
        await asyncio.wait([opening], timeout=0.6)
        assert not opening.done()
    await opening
    await store.close()


async def test_the_database_shows_what_each_connection_is_for(
    dsn: str, admin: asyncpg.Connection
) -> None:
    store = PostgresStore(dsn)
    await store.open()
    try:
        for lane in LaneName:
            await store.transaction(lambda tx: tx.now_ms(), lane)
        await store.read(lambda tx: tx.now_ms())
        rows = await admin.fetch(
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name LIKE 'tenure %' ORDER BY 1"
        )
    finally:
        await store.close()
    uses = ["heartbeat", "listen", "read", "service", "work"]
    assert [row[0] for row in rows] == [f"tenure {use}" for use in uses]
