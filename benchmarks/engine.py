"""The life cycle of a no-op task through ``engine.submit``, against the floor of the same run.

``ratio_to_floor``: 512 concurrent callers whose calls come as the edges deliver them, in frames.
``single_ratio_to_floor``: the same callers, and each command carries one item.
``idle_ratio_to_floor``: one caller on an idle engine, the worst of enqueue, claim and complete as
a multiple of the floor's single commit. Floor and engine take turns; the best of each counts.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from benchmarks.context import Context
from benchmarks.database import Database
from benchmarks.floor import postgres_rate, sqlite_rate
from benchmarks.floor_postgres import commit_medians_us, open_floor
from benchmarks.floor_sqlite import Floor as SqliteFloor
from benchmarks.floor_sqlite import commit_medians_us as sqlite_commit_medians_us
from benchmarks.flow import Flow, claim, combined_flow, open_callers, single_flow
from benchmarks.load import NAMESPACE, finish, new_task, open_engine, register
from tenure.core.worker.record import WorkerMode
from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.settings import Settings
from tenure.engine.task import command as c

STEPS = ("insert", "claim", "complete")
# Many short turns: on a shared machine the speed of processors and disks changes within seconds,
# and both sides must meet it at its best.
RATE_TURNS_PER_ROUND = 3
IDLE_TURN_COMMITS = 25


# The medians of single commits, over one turn.
Turn = Callable[[], Awaitable[dict[str, float]]]


@dataclass(frozen=True)
class Contest:
    """One kind of database: a fresh one of ours, and the floor on another."""

    make: Callable[[], Database]
    floor_rate: Callable[[], Awaitable[float]]
    open_floor: Callable[[], AbstractAsyncContextManager[Turn]]


class DatabaseClock:
    """Measures a flow of combined calls with the CPU time that PostgreSQL used meanwhile.

    A database is made, migrated and warmed up before: that costs more than the flow itself.
    """

    def __init__(self, context: Context) -> None:
        """Watch the server of a run."""
        self._context = context
        self.cpu_us = 0.0

    async def measure(self, engine: Engine, seconds: float) -> Flow:
        """Measure callers for a time, once they are warm."""
        async with open_callers(engine) as callers:
            before = self._context.server_cpu_seconds()
            flow = await callers.run_for(seconds)
            used = self._context.server_cpu_seconds() - before
        self.cpu_us = used * 1e6 / flow.task_count
        return flow


async def run(context: Context) -> dict[str, float]:
    """Measure both stores."""
    numbers: dict[str, float] = {}
    for name, contest in (("sqlite", _sqlite(context)), ("postgres", _postgres(context))):
        measured = await _measure_rates(context, contest) | await _measure_idle(context, contest)
        numbers |= {f"{name}.{measure}": value for measure, value in measured.items()}
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


def _sqlite(context: Context) -> Contest:
    scale = context.scale

    async def rate() -> float:
        return sqlite_rate(context.sqlite_path(), seconds=scale.seconds / 2)

    @contextlib.asynccontextmanager
    async def open_turns() -> AsyncIterator[Turn]:
        floor = SqliteFloor(context.sqlite_path())

        async def turn() -> dict[str, float]:
            return sqlite_commit_medians_us(floor, count=IDLE_TURN_COMMITS)

        yield turn
        floor.connection.close()

    return Contest(context.sqlite, rate, open_turns)


def _postgres(context: Context) -> Contest:
    scale, dsn = context.scale, context.postgres_dsn()

    async def rate() -> float:
        return await postgres_rate(dsn, seconds=scale.seconds / 2)

    @contextlib.asynccontextmanager
    async def open_turns() -> AsyncIterator[Turn]:
        async with open_floor(dsn) as floor:
            yield lambda: commit_medians_us(floor, count=IDLE_TURN_COMMITS)

    return Contest(context.postgres, rate, open_turns)


async def _measure_rates(context: Context, contest: Contest) -> dict[str, float]:
    seconds = context.scale.seconds / 2
    floors: list[float] = []
    flows: list[Flow] = []
    singles: list[Flow] = []
    database_cpu_us: list[float] = []
    for _ in range(RATE_TURNS_PER_ROUND * context.scale.round_count):
        floors.append(await contest.floor_rate())
        clock = DatabaseClock(context)
        flows.append(await measure_flow(contest.make(), seconds, measure=clock.measure))
        database_cpu_us.append(clock.cpu_us)
        singles.append(await measure_flow(contest.make(), seconds, measure=single_flow))
    floor = max(floors)
    best = max(flows, key=lambda flow: flow.rate)
    single = max(singles, key=lambda flow: flow.rate)
    return {
        "rate": best.rate,
        "rate.floor": floor,
        "ratio_to_floor": best.rate / floor,
        "cpu_us": best.cpu_us,
        # Nothing on SQLite, which has no server.
        "database_cpu_us": statistics.median(database_cpu_us),
        "single_rate": single.rate,
        "single_rate.floor": floor,
        "single_ratio_to_floor": single.rate / floor,
        "single_cpu_us": single.cpu_us,
    }


async def measure_flow(
    database: Database,
    seconds: float,
    settings: Settings | None = None,
    measure: Callable[[Engine, float], Awaitable[Flow]] = combined_flow,
) -> Flow:
    """Measure an engine on a database of its own; what it acknowledged must be stored."""
    engine = await open_engine(database.store(), settings)
    flow = await measure(engine, seconds)
    await engine.stop()
    finished = await database.count_finished()
    assert finished >= flow.task_count, f"{finished} of {flow.task_count} tasks are in history"
    return flow


async def _measure_idle(context: Context, contest: Contest) -> dict[str, float]:
    ours: list[dict[str, float]] = []
    floors: list[dict[str, float]] = []
    engine = await open_engine(contest.make().store())
    registered = await register(engine, 1, WorkerMode.POLL)
    worker_id = registered[0].worker.id
    turn_count = context.scale.round_count * context.scale.commit_count // IDLE_TURN_COMMITS
    async with contest.open_floor() as turn:
        for _ in range(turn_count):
            floors.append(await turn())
            ours.append(await _commit_us(engine, worker_id, IDLE_TURN_COMMITS))
    await engine.stop()
    best = {step: min(each[step] for each in ours) for step in STEPS}
    floor = {step: min(each[step] for each in floors) for step in STEPS}
    return {
        **{f"{step}_us": best[step] for step in STEPS},
        **{f"{step}_us.floor": floor[step] for step in STEPS},
        "idle_ratio_to_floor": max(best[step] / floor[step] for step in STEPS),
    }


async def _commit_us(engine: Engine, worker_id: str, count: int) -> dict[str, float]:
    """Return the median time of each command, in microseconds, nothing beside it."""
    times: dict[str, list[float]] = {step: [] for step in STEPS}

    async def timed(step: str, command: AnyCommand) -> object:
        began = time.perf_counter()
        answer = await engine.submit(command)
        times[step].append((time.perf_counter() - began) * 1e6)
        return answer

    for _ in range(count):
        await timed("insert", c.EnqueueTasks(namespace=NAMESPACE, tasks=(new_task(),)))
        tasks = await timed("claim", claim(worker_id, wait_ms=1_000))
        assert isinstance(tasks, tuple)
        assert len(tasks) == 1
        items = (finish(tasks[0]),)
        await timed(
            "complete", c.FinishTasks(namespace=NAMESPACE, worker_id=worker_id, items=items)
        )
    return {step: statistics.median(values) for step, values in times.items()}
