"""The limit on PostgreSQL: bare SQL on one connection, 500 tasks per transaction."""

import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self, TypeAlias

import asyncpg
import uuid_utils
from asyncpg.prepared_stmt import PreparedStatement

from benchmarks.statement import read_statements

# In quotes: these classes have type parameters in their stubs only.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Statement: TypeAlias = "PreparedStatement[asyncpg.Record]"
# What a completion needs of a task: its id and, as the fence, its version.
Row = tuple[object, object]

BATCH_SIZE = 500
VACUUM_EVERY_TASKS = 25_000
LEASE_MS = 30_000
PAGE_BYTES = 8_192
INPUT = b"i" * 32
OUTPUT = b"o" * 16
SQL = read_statements("floor_postgres.sql")


@dataclass(frozen=True)
class Floor:
    """The life of a task in three prepared statements, each of which is one transaction."""

    connection: Connection
    insert_statement: Statement
    claim_statement: Statement
    complete_statement: Statement
    worker_id: str

    @classmethod
    async def prepare(cls, connection: Connection) -> Self:
        """Make empty tables and the statements on them."""
        await connection.execute(SQL["create_schema"])
        return cls(
            connection,
            await connection.prepare(SQL["insert_tasks"]),
            await connection.prepare(SQL["claim_tasks"]),
            await connection.prepare(SQL["complete_tasks"]),
            new_ids(1)[0],
        )

    async def insert(self, ids: list[str], *, direct: bool) -> list[Row]:
        """Insert pending tasks, or with ``direct`` tasks that a worker already has."""
        now_ms, count = wall_ms(), len(ids)
        held = (1, self.worker_id, now_ms + LEASE_MS) if direct else (0, None, None)
        names = (["default"] * count, ["default"] * count, ["noop"] * count)
        numbers = ([0] * count, [now_ms] * count)
        await self.insert_statement.fetch(ids, *names, *numbers, [INPUT] * count, *held)
        return [(id, 1) for id in ids]

    async def claim(self, count: int) -> list[Row]:
        """Hand the first tasks of the queue to the worker."""
        now_ms = wall_ms()
        held = (self.worker_id, now_ms + LEASE_MS)
        rows = await self.claim_statement.fetch("default", "default", "noop", now_ms, count, *held)
        assert len(rows) == count, "the queue has fewer tasks than were put in"
        return [(row[0], row[1]) for row in rows]

    async def complete(self, rows: list[Row]) -> None:
        """Move tasks to history."""
        ids, versions = [row[0] for row in rows], [row[1] for row in rows]
        await self.complete_statement.fetch(ids, versions, [OUTPUT] * len(rows), wall_ms())

    async def live(self, ids: list[str], *, direct: bool) -> None:
        """Take a batch through its whole life: three commits, or two with ``direct``."""
        rows = await self.insert(ids, direct=direct)
        if not direct:
            rows = await self.claim(len(ids))
        await self.complete(rows)


async def postgres_rate(dsn: str, *, seconds: float, direct: bool = False) -> float:
    """Tasks per second, vacuum included, the making of ids not."""
    task_count, spent = 0, 0.0
    async with _open(dsn) as connection:
        floor = await Floor.prepare(connection)
        while spent < seconds:
            ids = new_ids(BATCH_SIZE)
            started = time.perf_counter()
            await floor.live(ids, direct=direct)
            task_count += BATCH_SIZE
            if task_count % VACUUM_EVERY_TASKS == 0:
                await connection.execute(SQL["vacuum_tasks"])
            spent += time.perf_counter() - started
        await _assert_complete(connection, task_count)
    return task_count / spent


async def postgres_single_commit_us(dsn: str, *, count: int) -> dict[str, float]:
    """Medians of one insert, one claim and one completion per transaction, nothing beside them."""
    async with open_floor(dsn) as floor:
        medians = await commit_medians_us(floor, count=count)
        await _assert_complete(floor.connection, count)
    return medians


@contextlib.asynccontextmanager
async def open_floor(dsn: str) -> AsyncIterator[Floor]:
    """Connect and make empty tables."""
    async with _open(dsn) as connection:
        yield await Floor.prepare(connection)


async def commit_medians_us(floor: Floor, *, count: int) -> dict[str, float]:
    """Medians of the single commits of one turn."""
    times: list[tuple[float, float, float, float]] = []
    for _ in range(count):
        ids = new_ids(1)
        begun = time.perf_counter()
        await floor.insert(ids, direct=False)
        inserted = time.perf_counter()
        rows = await floor.claim(1)
        claimed = time.perf_counter()
        await floor.complete(rows)
        times.append((begun, inserted, claimed, time.perf_counter()))
    return medians_us(times)


async def postgres_lease_rate(dsn: str, *, seconds: float, worker_count: int = 10_000) -> float:
    """Leases renewed per second, one update per 500 workers."""
    workers = new_ids(worker_count)
    flushes = [workers[at : at + BATCH_SIZE] for at in range(0, worker_count, BATCH_SIZE)]
    lease_count, token, spent = 0, 0, 0.0
    async with _open(dsn) as connection:
        await connection.execute(SQL["create_schema"])
        await connection.execute(SQL["create_workers"], workers)
        renew = await connection.prepare(SQL["renew_leases"])
        while spent < seconds:
            started = time.perf_counter()
            token += 1
            for flush in flushes:
                count, until_ms = len(flush), wall_ms() + LEASE_MS
                await renew.fetch(flush, [token] * count, [until_ms] * count)
            lease_count += worker_count
            spent += time.perf_counter() - started
        renewed = await connection.fetchval("SELECT count(*) FROM worker WHERE token = $1", token)
        assert renewed == worker_count, f"{renewed} of {worker_count} leases were renewed"
    return lease_count / spent


async def postgres_wal_bytes(dsn: str, *, task_count: int, direct: bool = False) -> float:
    """Bytes of write-ahead log per task, without vacuum and without full page images.

    Those images are written for the first change of a page after a checkpoint. The tables here
    are younger than the last checkpoint, so there are next to none; the server's count is asked.
    """
    batch_count = task_count // BATCH_SIZE
    async with _open(dsn) as connection:
        floor = await Floor.prepare(connection)
        await floor.live(new_ids(BATCH_SIZE), direct=direct)
        images_before = await _count_wal_images(connection)
        begun = await connection.fetchval(SQL["wal_position"])
        for _ in range(batch_count):
            await floor.live(new_ids(BATCH_SIZE), direct=direct)
        written = await connection.fetchval(SQL["wal_position"]) - begun
        images = await _count_wal_images(connection) - images_before
        assert images * PAGE_BYTES < written / 100, f"{images} page images: was it a checkpoint?"
    return float(written / (batch_count * BATCH_SIZE))


def new_ids(count: int) -> list[str]:
    """Return ids in the order of their making, as a client makes them."""
    return [str(uuid_utils.uuid7()) for _ in range(count)]


def wall_ms() -> int:
    """Return the time of the wall clock."""
    return time.time_ns() // 1_000_000


def medians_us(times: list[tuple[float, float, float, float]]) -> dict[str, float]:
    """Return the median length of each step, given the instants between the steps."""
    steps = ("insert", "claim", "complete")
    return {
        step: statistics.median((row[at + 1] - row[at]) * 1e6 for row in times)
        for at, step in enumerate(steps)
    }


@contextlib.asynccontextmanager
async def _open(dsn: str) -> AsyncIterator[Connection]:
    # Planned once: the claim and the completion have a shape for which one plan is always right.
    settings = {"jit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
    connection = await asyncpg.connect(dsn, server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


async def _count_wal_images(connection: Connection) -> int:
    await connection.execute(SQL["flush_statistics"])
    count: int = await connection.fetchval(SQL["count_wal_images"])
    return count


async def _assert_complete(connection: Connection, task_count: int) -> None:
    finished = await connection.fetchval("SELECT count(*) FROM history")
    assert finished == task_count, f"{finished} of {task_count} tasks are in history"
