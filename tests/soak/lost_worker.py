"""One worker with 10,000 held tasks is lost while other commands go on."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import msgspec

from tenure.core.filter import TaskFilter
from tenure.core.task.record import NewTask, Spec, TaskState
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import NewWorker, WorkerMode, WorkerStatus
from tenure.engine.access.command import CreateNamespace
from tenure.engine.clock import SystemClock
from tenure.engine.command import AnyCommand, TaskRef
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.settings import Settings
from tenure.engine.task.command import (
    ClaimTasks,
    ConfirmTasks,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
    Tasks,
)
from tenure.engine.worker.command import Heartbeat, RegisterWorker
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.table import listing, task_list
from tenure.store.table.listing import Slice
from tenure.store.transaction import Store, Tx
from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.postgres import PostgresServer
from tests.soak.result import Result

NAMESPACE: Final = "soak/default"
HELD_QUEUE: Final = "held"
OTHER_QUEUE: Final = "other"
TYPES: Final = ("noop",)
SPEC: Final = Spec(start_to_close_ms=600_000)
PROMISED_S: Final = 10.0
LEASE_MS: Final = 1_500
CALLERS: Final = 16


class Size(msgspec.Struct, frozen=True):
    """How many tasks are held, and how long the others are watched before."""

    held: int
    calm_s: float


SIZES: Final = {False: Size(10_000, 3.0), True: Size(1_500, 0.5)}


async def run(small: bool) -> list[Result]:
    """Lose a worker on both stores."""
    results = []
    for dialect in ("sqlite", "postgres"):
        async with _store(dialect) as store:
            results += await _lose(dialect, store, SIZES[small])
    return results


@asynccontextmanager
async def _store(dialect: str) -> AsyncIterator[Store]:
    if dialect == "sqlite":
        with tempfile.TemporaryDirectory(prefix="tenure-soak-") as folder:
            yield SqliteStore(str(Path(folder) / "tenure.db"), clock=SystemClock().now_ms)
        return
    server = await asyncio.to_thread(PostgresServer.start, durable=True)
    try:
        name = await asyncio.to_thread(server.create_database)
        yield PostgresStore(server.dsn(name))
    finally:
        await asyncio.to_thread(server.close)


class Others:
    """Callers that go on working in another queue, and how long each command took."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._clock = SystemClock()
        self.times: list[tuple[float, float]] = []
        self.is_stopping = False

    async def call(self) -> None:
        """Take tasks through their life, one after the other."""
        worker_id = await register(self._engine, OTHER_QUEUE, lease_ms=600_000)
        while not self.is_stopping:
            new = NewTask(id=self._clock.new_id(), type=TYPES[0], queue=OTHER_QUEUE, spec=SPEC)
            await self._timed(EnqueueTasks(namespace=NAMESPACE, tasks=(new,)))
            poll = ClaimTasks(
                namespace=NAMESPACE,
                worker_id=worker_id,
                queue=OTHER_QUEUE,
                types=frozenset(TYPES),
                wait_ms=1_000,
            )
            for task in cast("Tasks", await self._timed(poll)):
                item = Finish(task_id=task.id, attempt=1, kind=FinishKind.SUCCEEDED)
                await self._timed(
                    FinishTasks(namespace=NAMESPACE, worker_id=worker_id, items=(item,))
                )

    async def _timed(self, command: AnyCommand) -> object:
        began = time.monotonic()
        answer: object = await self._engine.submit(command)
        ended = time.monotonic()
        self.times.append((ended, ended - began))
        return answer

    def p99_ms(self, since: float, until: float) -> float:
        """Return the time that 99 of 100 commands stayed below."""
        times = sorted(took for at, took in self.times if since <= at <= until)
        return 1_000 * times[int(len(times) * 0.99)] if times else 0.0

    def count(self, since: float, until: float) -> int:
        return sum(since <= at <= until for at, _ in self.times)


async def register(engine: Engine, queue: str, *, lease_ms: int) -> str:
    new = NewWorker(
        instance_key=SystemClock().new_id(),
        queue=queue,
        types=TYPES,
        mode=WorkerMode.POLL,
        slots=10_000,
        lease_ms=lease_ms,
    )
    answer = await engine.submit(RegisterWorker(namespace=NAMESPACE, new=new))
    return answer.worker.id


async def _hold(engine: Engine, worker_id: str, count: int) -> None:
    """Let one worker claim and confirm many tasks."""
    clock = SystemClock()
    for start in range(0, count, 500):
        new = tuple(
            NewTask(id=clock.new_id(), type=TYPES[0], queue=HELD_QUEUE, spec=SPEC)
            for _ in range(min(500, count - start))
        )
        await engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=new))
    held = 0
    while held < count:
        poll = ClaimTasks(
            namespace=NAMESPACE,
            worker_id=worker_id,
            queue=HELD_QUEUE,
            types=frozenset(TYPES),
            max_tasks=500,
        )
        tasks = await engine.submit(poll)
        refs = tuple(TaskRef(task.id, task.attempt) for task in tasks)
        await engine.submit(ConfirmTasks(namespace=NAMESPACE, worker_id=worker_id, items=refs))
        held += len(tasks)


class Pulse:
    """The heartbeats of the worker, until it is lost."""

    def __init__(self, engine: Engine, worker_id: str) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self.is_lost = False

    async def beat(self) -> None:
        token = 1
        while not self.is_lost:
            beat = Beat(token=token, server_id=self._engine.server_id)
            command = Heartbeat(namespace=NAMESPACE, worker_id=self._worker_id, beat=beat)
            token = (await self._engine.submit(command)).lease.token
            await asyncio.sleep(LEASE_MS / 5_000)


async def _lose(dialect: str, store: Store, size: Size) -> list[Result]:
    settings = Settings(lease_least_ms=500)
    async with Engine(store, clock=SystemClock(), settings=settings) as engine:
        await engine.submit(CreateNamespace(name=NAMESPACE))
        worker_id = await register(engine, HELD_QUEUE, lease_ms=LEASE_MS)
        pulse = Pulse(engine, worker_id)
        others = Others(engine)
        async with asyncio.TaskGroup() as group:
            group.create_task(pulse.beat())
            await _hold(engine, worker_id, size.held)
            for _ in range(CALLERS):
                group.create_task(others.call())
            calm_since = time.monotonic()
            await asyncio.sleep(size.calm_s)
            pulse.is_lost = True
            silent_at = time.monotonic()
            lost_at = await _wait_offline(store, worker_id)
            done_at = await _wait_pending(store, size.held)
            others.is_stopping = True
        rows = await _outcomes(store)
    took_s = done_at - lost_at
    name = f"lost worker, {dialect}"
    return [
        Result(
            f"{name}: {size.held:,} held tasks pending again",
            f"under {PROMISED_S:.0f} s",
            f"{took_s:.2f} s after the judgement, {done_at - silent_at:.2f} s after the last beat",
            held=took_s < PROMISED_S,
        ),
        Result(
            f"{name}: each put back once",
            f"{size.held:,} attempts ended as worker_lost",
            f"{rows:,}",
            held=rows == size.held,
        ),
        Result(
            f"{name}: p99 of other commands meanwhile",
            "reported",
            f"{others.p99_ms(lost_at, done_at):.1f} ms of "
            f"{others.count(lost_at, done_at):,} "
            f"(before: {others.p99_ms(calm_since, silent_at):.1f} ms)",
        ),
    ]


async def _wait_offline(store: Store, worker_id: str) -> float:
    async def is_offline() -> bool:
        view = await query.get_worker(store, namespace=NAMESPACE, worker_id=worker_id)
        return view.worker.status is WorkerStatus.OFFLINE

    await eventually(is_offline, within_s=LONG_WORK_S)
    return time.monotonic()


async def _wait_pending(store: Store, count: int) -> float:
    async def are_pending() -> bool:
        depths = await store.read(
            lambda tx: listing.count_depths(tx, NAMESPACE, [HELD_QUEUE], amount=2 * count)
        )
        return depths.get(HELD_QUEUE, {}).get(TaskState.PENDING) == count

    await eventually(are_pending, within_s=LONG_WORK_S, every_s=0.05)
    return time.monotonic()


async def _outcomes(store: Store) -> int:
    """Count the attempts that ended because their worker was lost."""

    async def body(tx: Tx) -> int:
        found, position = 0, listing.NEWEST
        while True:
            part = Slice(position, 2 * _PART, _PART)
            page = await task_list.find_tasks(tx, NAMESPACE, _ALL_HELD, part)
            ended = await tx.each("load_ended", [(NAMESPACE, each, 1) for each in page.ids])
            found += sum(row[3] == "worker_lost" for row in ended)
            if page.end_id is None:
                return found
            position = page.end_id

    return await store.read(body)


_PART: Final = 1_000
_ALL_HELD: Final = TaskFilter(queue=HELD_QUEUE)
