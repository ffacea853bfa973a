"""Heartbeats on PostgreSQL: how many per second, and what one costs with and without held tasks.

``ratio_to_floor``: 10,000 workers with correct tokens, many heartbeats in flight, against bare
batched updates of as many leases. ``held_500_…``: rows, statements and write-ahead log per
heartbeat while each worker holds 500 tasks, against none; of the kind that costs most, which asks
for cancellations. No service runs beside it, so nothing else is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.context import Context
from benchmarks.database import FIXTURE, Connection, wal_position
from benchmarks.engine import RATE_TURNS_PER_ROUND
from benchmarks.floor_postgres import postgres_lease_rate
from benchmarks.flow import Flow, Stopwatch
from benchmarks.load import INPUT, NAMESPACE, QUEUE, SPEC, TYPE, open_engine, register
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import WorkerMode
from tenure.engine.engine import Engine
from tenure.engine.task.command import ConfirmTasks
from tenure.engine.worker.command import Heartbeat, Registration, Renewed
from tenure.store.table import codec

STREAMS = 4
FLUSH_SIZE = 500
HELD = 500
WARM_UP_BEATS = 30
COUNTED_BEATS = 40
STATISTICS_SECONDS = 1.2


@dataclass(frozen=True)
class Cost:
    """What one heartbeat costs."""

    rows: float
    statements: float
    wal_bytes: float


class Beaters:
    """Workers that beat with the token of the last answer."""

    def __init__(self, engine: Engine, registered: Sequence[Registration]) -> None:
        """Begin with the tokens of the registrations."""
        self._engine = engine
        self.tokens = {each.worker.id: each.lease.token for each in registered}

    async def beat(
        self, worker_ids: Sequence[str], *, active_count: int = 0, wants_cancels: bool = False
    ) -> None:
        """Beat once for each worker, all at the same time."""
        tokens, engine = self.tokens, self._engine
        futures = [
            engine.submit(
                Heartbeat(
                    namespace=NAMESPACE,
                    worker_id=worker_id,
                    beat=Beat(
                        token=tokens[worker_id],
                        server_id=engine.server_id,
                        active_count=active_count,
                    ),
                    wants_cancels=wants_cancels,
                )
            )
            for worker_id in worker_ids
        ]
        for worker_id, future in zip(worker_ids, futures, strict=True):
            renewed: Renewed = await future
            tokens[worker_id] = renewed.lease.token


async def run(context: Context) -> dict[str, float]:
    """Measure rate and cost."""
    numbers = await _measure_rate(context) | await _measure_held(context)
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


async def _measure_rate(context: Context) -> dict[str, float]:
    scale, floor_dsn = context.scale, context.postgres_dsn()
    engine = await open_engine(context.postgres().store())
    registered = await register(engine, scale.worker_count, WorkerMode.SESSION)
    beaters = Beaters(engine, registered)
    floors: list[float] = []
    flows: list[Flow] = []
    for _ in range(RATE_TURNS_PER_ROUND * scale.round_count):
        floor = await postgres_lease_rate(
            floor_dsn, seconds=scale.seconds / 2, worker_count=scale.worker_count
        )
        floors.append(floor)
        flows.append(await _beat_for(beaters, scale.seconds / 2))
    await engine.stop()
    best = max(flows, key=lambda flow: flow.rate)
    return {
        "postgres.rate": best.rate,
        "postgres.rate.floor": max(floors),
        "postgres.ratio_to_floor": best.rate / max(floors),
        "postgres.cpu_us": best.cpu_us,
    }


async def _beat_for(beaters: Beaters, seconds: float) -> Flow:
    """Let several streams beat for their share of the workers, round after round."""
    workers = [*beaters.tokens]
    is_over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, is_over.set)

    async def stream(mine: Sequence[str]) -> int:
        count, at = 0, 0
        while not is_over.is_set():
            flush = mine[at : at + FLUSH_SIZE]
            await beaters.beat(flush)
            count += len(flush)
            at = at + FLUSH_SIZE if at + FLUSH_SIZE < len(mine) else 0
        return count

    watch = Stopwatch()
    counts = await asyncio.gather(*(stream(workers[at::STREAMS]) for at in range(STREAMS)))
    return watch.flow(sum(counts))


async def _measure_held(context: Context) -> dict[str, float]:
    database = context.postgres()
    statements: list[str] = []
    engine = await open_engine(database.store(statements.append), services=())
    registered = await register(engine, context.scale.holder_count, WorkerMode.POLL)
    beaters = Beaters(engine, registered)
    # The registrations are handed over to the statistics with the next command, a second later.
    await asyncio.sleep(STATISTICS_SECONDS)
    await engine.submit(ConfirmTasks(namespace=NAMESPACE, worker_id=None, items=()))
    async with database.connect() as connection:
        # What autovacuum writes would be counted too.
        for table in ("tasks", "leases", "workers"):
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await _beat_times(beaters, WARM_UP_BEATS, 0)
        without = await _cost(connection, beaters, statements, 0)
        await _hold(connection, [*beaters.tokens])
        await _beat_times(beaters, WARM_UP_BEATS, HELD)
        held = await _cost(connection, beaters, statements, HELD)
    await engine.stop()
    return {
        "postgres.held_0_wal_bytes": without.wal_bytes,
        "postgres.held_500_wal_bytes": held.wal_bytes,
        "postgres.held_500_wal_ratio": held.wal_bytes / without.wal_bytes,
        "postgres.held_0_rows_per_beat": without.rows,
        "postgres.held_500_rows_per_beat": held.rows,
        "postgres.held_0_statements_per_batch": without.statements,
        "postgres.held_500_statements_per_batch": held.statements,
    }


async def _beat_times(beaters: Beaters, times: int, held: int) -> None:
    workers = [*beaters.tokens]
    for _ in range(times):
        await beaters.beat(workers, active_count=held, wants_cancels=True)


async def _hold(connection: Connection, workers: list[str]) -> None:
    """Let each worker hold tasks, made by one statement."""
    now_ms = await connection.fetchval(FIXTURE["now_ms"])
    named = (NAMESPACE, QUEUE, TYPE, codec.spec_to(SPEC)[1], INPUT)
    await connection.execute(FIXTURE["insert_held"], workers, now_ms, HELD, *named)
    # Or these rows would be counted among those that heartbeats write.
    await connection.execute(FIXTURE["flush_statistics"])


async def _cost(connection: Connection, beaters: Beaters, statements: list[str], held: int) -> Cost:
    worker_count = len(beaters.tokens)
    rows_before = await _count_rows(connection, beaters, held)
    statements.clear()
    begun = await wal_position(connection)
    await _beat_times(beaters, COUNTED_BEATS, held)
    written = await wal_position(connection) - begun
    run = [name for name in statements if not name.endswith("COMMIT")]
    rows = await _count_rows(connection, beaters, held) - rows_before
    return Cost(
        rows=rows / ((COUNTED_BEATS + 1) * worker_count),
        statements=len(run) / COUNTED_BEATS,
        wal_bytes=written / (COUNTED_BEATS * worker_count),
    )


async def _count_rows(connection: Connection, beaters: Beaters, held: int) -> int:
    """Return the count of written rows, that of one more heartbeat of each worker included.

    A session hands its counts over after a transaction, when the last time is a second ago.
    """
    await asyncio.sleep(STATISTICS_SECONDS)
    await _beat_times(beaters, 1, held)
    await asyncio.sleep(STATISTICS_SECONDS)
    count: int = await connection.fetchval(FIXTURE["count_written_rows"])
    return count
