"""Celery on Redis: prefork, acknowledged after the run, so that a task is not lost by design."""

from __future__ import annotations

import asyncio
import itertools

import redis
from celery import Celery, chain

from benchmarks.peers import adapter, record

app = Celery("bench", broker=f"{adapter.URL}/0", backend=f"{adapter.URL}/1")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_default_queue=adapter.QUEUE,
    broker_connection_retry_on_startup=True,
)
RESULT_SECONDS_MAX = 30
WAITING = "unacked"
# Waiting in threads for many chains loses some of their results.
CHAIN_POLL_SECONDS = 0.2


@app.task(name="noop", ignore_result=True)
def noop(number: int) -> None:
    record.ran(number)


@app.task(name="answer")
def answer(number: int) -> int:
    record.ran(number)
    return number


@app.task(name="hold", ignore_result=True)
def hold(number: int) -> None:
    record.hold(number)


class Adapter(adapter.Adapter):
    _worker_numbers = itertools.count()

    def worker_command(self) -> list[str]:
        program = str(adapter.PROGRAMS / "celery")
        name = f"--hostname=w{next(self._worker_numbers)}@bench"
        options = ["--concurrency=1", name, "--loglevel=WARNING"]
        return [program, "--app", __name__, "worker", *options]

    async def open(self) -> None:
        self._redis = redis.Redis.from_url(f"{adapter.URL}/0")
        self._sent = 0

    async def enqueue(self, numbers: range) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                noop.apply_async((number,), producer=producer)
        self._sent += len(numbers)

    async def completed(self) -> int:
        # What waits is in the list; what was taken and is not yet acknowledged is in the hash.
        pipeline = self._redis.pipeline().llen(adapter.QUEUE).hlen(WAITING)
        return self._sent - sum(pipeline.execute())

    async def run(self, number: int) -> None:
        self._sent += 1
        await self.in_thread(self._run, number)

    async def hold(self, number: int) -> None:
        self._sent += 1
        hold.delay(number)

    async def run_workflow(self, number: int) -> None:
        links = [answer.s(number), *(answer.s() for _ in range(adapter.STEPS - 1))]
        result = chain(*links).apply_async()
        while not result.ready():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(CHAIN_POLL_SECONDS)

    def _run(self, number: int) -> None:
        answer.delay(number).get(timeout=RESULT_SECONDS_MAX)
