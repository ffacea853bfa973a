"""Chancy: a worker with the asynchronous executor."""

from __future__ import annotations

import asyncio
import logging

from chancy import Chancy, Queue, Worker, job

from benchmarks.peers import adapter, record

CONCURRENCY = 100
DONE = "SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'"


@job(queue=adapter.QUEUE)
async def noop(*, number: int) -> None:
    record.ran(number)


@job(queue=adapter.QUEUE)
async def hold(*, number: int) -> None:
    await record.hold_async(number)


class Adapter(adapter.Adapter):
    def worker_command(self) -> list[str]:
        return [adapter.PYTHON, "-m", __name__]

    async def prepare(self) -> None:
        self._app = Chancy(adapter.URL, log=logging.getLogger("chancy"))
        await self._app.migrate()
        queue = Queue(
            adapter.QUEUE,
            concurrency=CONCURRENCY,
            executor=Chancy.Executor.Async,
            # Else a worker sleeps for seconds between two fetches.
            eager_polling=True,
        )
        await self._app.declare(queue)

    async def enqueue(self, numbers: range) -> None:
        jobs = [noop.job.with_kwargs(number=number) for number in numbers]
        async for _ in self._app.push_many(jobs):
            pass

    async def completed(self) -> int:
        async with self._app.pool.connection() as connection:
            cursor = await connection.execute(DONE)
            (count,) = await cursor.fetchone()
        return count

    async def run(self, number: int) -> None:
        reference = await self._app.push(noop.job.with_kwargs(number=number))
        await self._app.wait_for_job(reference)

    async def hold(self, number: int) -> None:
        await self._app.push(hold.job.with_kwargs(number=number))


async def main() -> None:
    """Work until ended."""
    log = logging.getLogger("chancy")
    async with Chancy(adapter.URL, log=log) as app, Worker(app) as worker:
        await worker.wait_for_shutdown()


if __name__ == "__main__":
    asyncio.run(main())
