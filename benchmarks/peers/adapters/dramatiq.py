"""Dramatiq on Redis: one process with eight threads, its default number."""

from __future__ import annotations

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks.peers import adapter, record

broker = RedisBroker(url=f"{adapter.URL}/0")
broker.add_middleware(Results(backend=RedisBackend(url=f"{adapter.URL}/1")))
dramatiq.set_broker(broker)
HOLD_MS = 3_600_000
RESULT_MS_MAX = 30_000


@dramatiq.actor(queue_name=adapter.QUEUE)
def noop(number: int) -> None:
    record.ran(number)


@dramatiq.actor(queue_name=adapter.QUEUE, store_results=True)
def answer(number: int) -> int:
    record.ran(number)
    return number


@dramatiq.actor(queue_name=adapter.QUEUE, time_limit=HOLD_MS)
def hold(number: int) -> None:
    record.hold(number)


class Adapter(adapter.Adapter):
    def worker_command(self) -> list[str]:
        return [str(adapter.PROGRAMS / "dramatiq"), "--processes", "1", __name__]

    async def open(self) -> None:
        self._redis = redis.Redis.from_url(f"{adapter.URL}/0")
        self._sent = 0

    async def enqueue(self, numbers: range) -> None:
        for number in numbers:
            noop.send(number)
        self._sent += len(numbers)

    async def completed(self) -> int:
        # A message stays in this hash until it is acknowledged.
        return self._sent - self._redis.hlen(f"dramatiq:{adapter.QUEUE}.msgs")

    async def run(self, number: int) -> None:
        self._sent += 1
        await self.in_thread(self._run, number)

    async def hold(self, number: int) -> None:
        self._sent += 1
        hold.send(number)

    async def run_workflow(self, number: int) -> None:
        await self.in_thread(self._run_pipeline, number)

    def _run_pipeline(self, number: int) -> None:
        first = answer.message(number)
        rest = [answer.message() for _ in range(adapter.STEPS - 1)]
        pipeline = dramatiq.pipeline([first, *rest]).run()
        pipeline.get_result(block=True, timeout=RESULT_MS_MAX)

    def _run(self, number: int) -> None:
        answer.send(number).get_result(block=True, timeout=RESULT_MS_MAX)
