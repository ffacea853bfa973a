"""Taskiq on Redis streams, the broker whose messages are acknowledged."""

from __future__ import annotations

import asyncio

import redis
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.peers import adapter, record

results = RedisAsyncResultBackend(f"{adapter.URL}/1", result_ex_time=3_600)
broker = RedisStreamBroker(f"{adapter.URL}/0", queue_name=adapter.QUEUE, consumer_id="0")
broker = broker.with_result_backend(results)
SENT_AT_ONCE = 50


@broker.task(task_name="noop")
async def noop(number: int) -> int:
    record.ran(number)
    return number


@broker.task(task_name="hold")
async def hold(number: int) -> int:
    await record.hold_async(number)
    return number


class Adapter(adapter.Adapter):
    chunk = 500

    def worker_command(self) -> list[str]:
        program = str(adapter.PROGRAMS / "taskiq")
        options = ["--workers", "1", "--log-level", "WARNING"]
        return [program, "worker", *options, f"{__name__}:broker"]

    async def open(self) -> None:
        await broker.startup()
        self._results = redis.Redis.from_url(f"{adapter.URL}/1")

    async def enqueue(self, numbers: range) -> None:
        for first in range(0, len(numbers), SENT_AT_ONCE):
            part = numbers[first : first + SENT_AT_ONCE]
            await asyncio.gather(*(noop.kiq(number) for number in part))

    async def completed(self) -> int:
        return self._results.dbsize()

    async def run(self, number: int) -> None:
        task = await noop.kiq(number)
        await task.wait_result()

    async def hold(self, number: int) -> None:
        await hold.kiq(number)
