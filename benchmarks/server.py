"""The life cycle of a no-op task through a real server: client, server and worker processes.

``tasks_per_s``: 512 tasks in flight from one client, in calls of 32 whose tasks are independent,
one worker in a session, results over one stream; timed from the first call to the last result.
``idle_p50_ms``: one task at a time on an idle server, from the call to its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from benchmarks.context import Context
from tenure.engine.clock import SystemClock
from tenure.v1 import task_pb2, task_service_pb2_grpc
from tenure.v1 import task_service_pb2 as pb

CALLS = 16
CALL_TASKS = 32
IDLE_COUNT = 200
QUEUE = "bench"
TYPE = "noop"
OPTIONS = task_pb2.TaskOptions(start_to_close_ms=600_000)
PYTHON = sys.executable


async def run(context: Context) -> dict[str, float]:
    """Measure both stores."""
    numbers: dict[str, float] = {}
    for name, url in (
        ("sqlite", f"sqlite:///{context.sqlite_path()}"),
        ("postgres", context.postgres_dsn()),
    ):
        async with _open(url) as client:
            await client.flow(context.scale.run_task_count // 20)
            rates = [
                await client.flow(context.scale.run_task_count // 5)
                for _ in range(context.scale.round_count)
            ]
            idle_ms = await client.idle()
        numbers[f"{name}.tasks_per_s"] = max(rates)
        numbers[f"{name}.idle_p50_ms"] = statistics.median(idle_ms)
        numbers[f"{name}.idle_p99_ms"] = statistics.quantiles(idle_ms, n=100)[98]
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


class Client:
    """Enqueues, and hears of results over one stream."""

    def __init__(self, channel: grpc.aio.Channel, idle_count: int = IDLE_COUNT) -> None:
        self._idle_count = idle_count
        self._tasks: Any = task_service_pb2_grpc.TaskServiceStub(channel)
        self._watch: Any = self._tasks.WatchTasks()
        self._ids = SystemClock()
        self._left = 0
        self._all_done = asyncio.Event()
        self._writing = asyncio.Lock()

    async def read(self) -> None:
        """Count results for as long as there is a stream."""
        async for frame in self._watch:
            self._left -= len(frame.results)
            if self._left == 0:
                self._all_done.set()

    async def flow(self, count: int) -> float:
        """Bring tasks to their end and return how many came there per second."""
        calls = iter(range(count // CALL_TASKS))
        self._left = count // CALL_TASKS * CALL_TASKS
        self._all_done.clear()
        began = time.perf_counter()
        room = asyncio.Semaphore(CALLS)
        await asyncio.gather(*(self._call(room) for _ in calls))
        await self._all_done.wait()
        return count / (time.perf_counter() - began)

    async def _call(self, room: asyncio.Semaphore) -> None:
        async with room:
            ids = [self._ids.new_id() for _ in range(CALL_TASKS)]
            await self._enqueue(ids)
            async with self._writing:
                await self._watch.write(pb.WatchTasksRequest(add=ids))

    async def _enqueue(self, ids: list[str]) -> None:
        tasks = [
            task_pb2.NewTask(task_id=each, type=TYPE, task_queue=QUEUE, options=OPTIONS)
            for each in ids
        ]
        await self._tasks.EnqueueTasks(pb.EnqueueTasksRequest(tasks=tasks, independent=True))

    async def idle(self) -> list[float]:
        """Run tasks one after the other and return how long each took."""
        took = []
        for _ in range(self._idle_count):
            task_id = self._ids.new_id()
            self._left = 1
            self._all_done.clear()
            began = time.perf_counter()
            await self._enqueue([task_id])
            await self._watch.write(pb.WatchTasksRequest(add=[task_id]))
            await self._all_done.wait()
            took.append((time.perf_counter() - began) * 1000)
        return took


@contextlib.asynccontextmanager
async def _open(url: str) -> AsyncIterator[Client]:
    """Start a server and a worker as processes of their own, and connect to them."""
    command = [PYTHON, "-m", "tenure.cli", "server", "--store", url, "--log-level", "warning"]
    server = await asyncio.create_subprocess_exec(
        *command, *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"), stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    target = (await server.stdout.readline()).decode().rpartition("grpc=")[2].strip()
    worker = await asyncio.create_subprocess_exec(
        *(PYTHON, "-m", "benchmarks.server_worker", target, QUEUE, TYPE)
    )
    async with grpc.aio.insecure_channel(target) as channel:
        client = Client(channel)
        reading = asyncio.ensure_future(client.read())
        try:
            yield client
        finally:
            reading.cancel()
            for process in (worker, server):
                process.terminate()
                await process.wait()
