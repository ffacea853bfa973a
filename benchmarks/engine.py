"""The life cycle of a no-op task through ``engine.submit``, against the floor of the same run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks.context import Context
from benchmarks.floor import (
    postgres_rate,
    postgres_single_commit_us,
    sqlite_rate,
    sqlite_single_commit_us,
)
from tenure.core.task_record import NewTask, Spec
from tenure.core.worker import NewWorker, WorkerMode
from tenure.engine import command as c
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.settings import Settings
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Store

NAMESPACE = "bench/default"
QUEUE = "bench"
TYPE = "noop"
TYPES = frozenset({TYPE})
INPUT = b"x" * 32
OUTPUT = b"y" * 16
WORKERS = 8
CALLERS = 512
SPEC = Spec(start_to_close_ms=60_000)


def new_task(clock: SystemClock) -> NewTask:
    """Return a no-op task."""
    return NewTask(id=clock.new_id(), type=TYPE, queue=QUEUE, spec=SPEC, input=INPUT)


async def open_engine(store: Store, settings: Settings | None = None) -> Engine:
    """Start an engine with the benchmark's namespace."""
    engine = Engine(store, clock=SystemClock(), settings=settings)
    await engine.start()
    await engine.submit(c.CreateNamespace(name=NAMESPACE))
    return engine


async def register(engine: Engine, count: int) -> list[str]:
    """Register workers with a lease that outlasts the benchmark."""
    ids = []
    for number in range(count):
        new = NewWorker(
            instance_key=f"bench-{number}",
            queue=QUEUE,
            types=(TYPE,),
            mode=WorkerMode.POLL,
            lease_ms=600_000,
            slots=10_000,
        )
        registration = await engine.submit(c.RegisterWorker(namespace=NAMESPACE, new=new))
        ids.append(registration.worker.id)
    return ids


async def lifecycle_rate(engine: Engine, workers: list[str], seconds: float) -> float:
    """Return completed tasks per second: 512 callers, each polls, enqueues and completes."""
    clock = SystemClock()
    done = 0
    ends_at = time.perf_counter() + seconds

    async def caller(worker_id: str) -> None:
        nonlocal done
        while time.perf_counter() < ends_at:
            poll = engine.submit(claim(worker_id))
            await engine.submit(c.EnqueueTasks(namespace=NAMESPACE, tasks=(new_task(clock),)))
            for task in await poll:
                await engine.submit(finish(worker_id, task.id, task.attempt))
                done += 1

    began = time.perf_counter()
    await asyncio.gather(*(caller(workers[i % len(workers)]) for i in range(CALLERS)))
    return done / (time.perf_counter() - began)


def claim(worker_id: str) -> c.ClaimTasks:
    """Return a poll for one task."""
    return c.ClaimTasks(
        namespace=NAMESPACE,
        worker_id=worker_id,
        queue=QUEUE,
        types=TYPES,
        max_tasks=1,
        wait_ms=200,
    )


def finish(worker_id: str, task_id: str, attempt: int) -> c.FinishTasks:
    """Return a completion of one task."""
    item = c.Finish(
        task_id=task_id,
        attempt=attempt,
        kind=c.FinishKind.SUCCEEDED,
        output=OUTPUT,
    )
    return c.FinishTasks(namespace=NAMESPACE, worker_id=worker_id, items=(item,))


async def single_commit_us(engine: Engine, worker_id: str, count: int) -> dict[str, float]:
    """Return the median time of each command on an idle engine, in microseconds."""
    clock = SystemClock()
    times: dict[str, list[float]] = {"insert": [], "claim": [], "complete": []}

    async def timed(name: str, command: c.Command) -> object:
        began = time.perf_counter()
        answer = await engine.submit(command)
        times[name].append((time.perf_counter() - began) * 1e6)
        return answer

    for _ in range(count):
        await timed("insert", c.EnqueueTasks(namespace=NAMESPACE, tasks=(new_task(clock),)))
        tasks = await timed("claim", claim(worker_id))
        assert isinstance(tasks, tuple)
        await timed("complete", finish(worker_id, tasks[0].id, tasks[0].attempt))
    return {name: statistics.median(values) for name, values in times.items()}


async def _measure(
    context: Context,
    name: str,
    make: Callable[[], Store],
    floor_rate: Callable[[float], Awaitable[float]],
    floor_single: Callable[[], Awaitable[dict[str, float]]],
) -> dict[str, float]:
    """Alternate floor and engine, and take the best of each: the machine is shared."""
    seconds = context.scale.seconds
    ours = 0.0
    floor = 0.0
    for _ in range(context.scale.round_count):
        floor = max(floor, await floor_rate(seconds))
        engine = await open_engine(make())
        workers = await register(engine, WORKERS)
        ours = max(ours, await lifecycle_rate(engine, workers, seconds))
        await engine.stop()
    engine = await open_engine(make())
    workers = await register(engine, 1)
    single = await single_commit_us(engine, workers[0], context.scale.commit_count)
    await engine.stop()
    floor_us = await floor_single()
    idle = max(single[step] / floor_us[step] for step in single)
    return {
        f"{name}.rate": ours,
        f"{name}.rate.floor": floor,
        f"{name}.ratio_to_floor": ours / floor,
        **{f"{name}.{step}_us": value for step, value in single.items()},
        **{f"{name}.{step}_us.floor": floor_us[step] for step in single},
        f"{name}.idle_ratio_to_floor": idle,
    }


async def run(context: Context) -> dict[str, float]:
    """Measure both stores."""

    async def sqlite_floor(seconds: float) -> float:
        return await asyncio.to_thread(sqlite_rate, context.sqlite_path(), seconds=seconds)

    async def sqlite_single() -> dict[str, float]:
        return await asyncio.to_thread(
            sqlite_single_commit_us,
            context.sqlite_path(),
            count=context.scale.commit_count,
        )

    async def postgres_floor(seconds: float) -> float:
        return await postgres_rate(context.postgres_dsn(), seconds=seconds)

    async def postgres_single() -> dict[str, float]:
        return await postgres_single_commit_us(
            context.postgres_dsn(),
            count=context.scale.commit_count,
        )

    clock = SystemClock()
    return {
        **await _measure(
            context,
            "sqlite",
            lambda: SqliteStore(str(context.sqlite_path()), clock=clock.now_ms),
            sqlite_floor,
            sqlite_single,
        ),
        **await _measure(
            context,
            "postgres",
            lambda: PostgresStore(context.postgres_dsn()),
            postgres_floor,
            postgres_single,
        ),
    }
