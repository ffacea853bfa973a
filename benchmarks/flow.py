"""Tasks flowing through an engine, and how fast: the measurements that the parts share."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from benchmarks.load import (
    NAMESPACE,
    QUEUE,
    TYPE,
    Client,
    CombiningClient,
    EnqueueFrames,
    NoOpWorker,
    RefillingClient,
    finish,
    new_task,
    register,
)
from tenure.core.worker.record import WorkerMode
from tenure.engine.engine import Engine
from tenure.engine.task import command as c

CALLERS = 512
SESSIONS = 4
WINDOW = 256
POLLERS = 8
WARM_UP_SECONDS = 0.3
# A task that is lost would otherwise be waited for without end.
SECONDS_MAX = 180.0
TYPES = frozenset({TYPE})


@dataclass(frozen=True)
class Flow:
    """What was done, in which time, with how much CPU of this process."""

    task_count: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Tasks per second, acknowledged."""
        return self.task_count / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time per task: engine, client and workers together."""
        return self.cpu_seconds * 1e6 / self.task_count


class Stopwatch:
    """Wall clock and CPU time since its making."""

    def __init__(self) -> None:
        """Start."""
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()

    def flow(self, task_count: int) -> Flow:
        """Return what was done since."""
        seconds = time.perf_counter() - self._began
        return Flow(task_count, seconds, time.process_time() - self._cpu_began)


class Callers:
    """512 coroutines; each runs one task after the other and waits for its completion."""

    def __init__(self, client: CombiningClient) -> None:
        """Call through ``client``."""
        self._client = client

    async def run_for(self, seconds: float) -> Flow:
        """Measure for a time."""
        ends_at = time.perf_counter() + seconds
        return await self._run(lambda: time.perf_counter() < ends_at)

    async def run_count(self, task_count: int) -> Flow:
        """Measure so many tasks."""
        left: Iterator[int] = iter(range(task_count))
        return await self._run(lambda: next(left, None) is not None)

    async def _run(self, has_more: Callable[[], bool]) -> Flow:
        done = 0

        async def call() -> None:
            nonlocal done
            while has_more():
                await self._client.run(new_task())
                done += 1

        watch = Stopwatch()
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*(call() for _ in range(CALLERS)))
        return watch.flow(done)


@contextlib.asynccontextmanager
async def open_callers(engine: Engine) -> AsyncIterator[Callers]:
    """Open sessions for no-op tasks and warm up, in the same way in which it is measured then."""
    async with asyncio.TaskGroup() as group:
        client = CombiningClient(EnqueueFrames(engine, group))
        async with _open_sessions(engine, client, group):
            callers = Callers(client)
            await callers.run_for(WARM_UP_SECONDS)
            yield callers


async def combined_flow(engine: Engine, seconds: float) -> Flow:
    """Measure 512 callers whose calls reach the engine as the edges deliver them."""
    async with open_callers(engine) as callers:
        return await callers.run_for(seconds)


async def backlog_flow(engine: Engine, seconds: float) -> Flow:
    """Measure sessions that work on a queue which stays as long as it is."""
    async with asyncio.TaskGroup() as group:
        client = RefillingClient(EnqueueFrames(engine, group))
        async with _open_sessions(engine, client, group):
            async with asyncio.timeout(SECONDS_MAX):
                await client.has_begun.wait()
            await asyncio.sleep(WARM_UP_SECONDS)
            watch, before = Stopwatch(), client.done_count
            await asyncio.sleep(seconds)
            return watch.flow(client.done_count - before)


@contextlib.asynccontextmanager
async def _open_sessions(
    engine: Engine, client: Client, group: asyncio.TaskGroup
) -> AsyncIterator[None]:
    registered = await register(engine, SESSIONS, WorkerMode.SESSION)
    workers = [NoOpWorker(engine, client, each.worker.id) for each in registered]
    served = [group.create_task(worker.serve()) for worker in workers]
    for worker in workers:
        await worker.open(WINDOW)
    yield
    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.gather(*(worker.close() for worker in workers))
    for task in served:
        task.cancel()


async def single_flow(engine: Engine, seconds: float) -> Flow:
    """Measure 512 callers with commands of one item: each polls, enqueues and completes."""
    workers = [each.worker.id for each in await register(engine, POLLERS, WorkerMode.POLL)]
    done = 0

    async def call(worker_id: str) -> None:
        nonlocal done
        while time.perf_counter() < ends_at:
            poll = engine.submit(claim(worker_id, wait_ms=200))
            await engine.submit(c.EnqueueTasks(namespace=NAMESPACE, tasks=(new_task(),)))
            for task in await poll:
                answer = await engine.submit(
                    c.FinishTasks(namespace=NAMESPACE, worker_id=worker_id, items=(finish(task),))
                )
                assert isinstance(answer[0], c.Reported), f"{task.id}: {answer[0]}"
                done += 1

    async def run() -> Flow:
        nonlocal done
        done = 0
        watch = Stopwatch()
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*(call(workers[at % POLLERS]) for at in range(CALLERS)))
        return watch.flow(done)

    ends_at = time.perf_counter() + WARM_UP_SECONDS
    await run()
    ends_at = time.perf_counter() + seconds
    return await run()


def claim(worker_id: str, *, wait_ms: int) -> c.ClaimTasks:
    """Return a poll for one task."""
    return c.ClaimTasks(
        namespace=NAMESPACE,
        worker_id=worker_id,
        queue=QUEUE,
        types=TYPES,
        max_tasks=1,
        wait_ms=wait_ms,
    )
