"""PgQueuer: ``pgq run`` with batches of 100."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.core.completion import CompletionWatcher
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers import adapter, record

BATCH = 100
DONE = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    """Make the application that ``pgq run`` loads."""
    connection = await asyncpg.connect(adapter.URL)
    app = PgQueuer(AsyncpgDriver(connection))

    @app.entrypoint("noop")
    async def noop(job: Job) -> None:
        record.ran(int(job.payload))

    @app.entrypoint("hold")
    async def hold(job: Job) -> None:
        await record.hold_async(int(job.payload))

    yield app
    await connection.close()


class Adapter(adapter.Adapter):
    def worker_command(self) -> list[str]:
        options = ["--batch-size", str(BATCH)]
        return [str(adapter.PROGRAMS / "pgq"), "run", *options, f"{__name__}:worker"]

    async def prepare(self) -> None:
        self._connection = await asyncpg.connect(adapter.URL)
        self._queries = Queries(AsyncpgDriver(self._connection))
        await self._queries.install()

    async def open(self) -> None:
        listening = AsyncpgDriver(await asyncpg.connect(adapter.URL))
        self._watcher = CompletionWatcher(listening, queries=Queries(listening))
        await self._watcher.__aenter__()

    async def enqueue(self, numbers: range) -> None:
        count = len(numbers)
        payloads = [b"%d" % number for number in numbers]
        await self._queries.enqueue(["noop"] * count, payloads, [0] * count)

    async def completed(self) -> int:
        return await self._connection.fetchval(DONE)

    async def run(self, number: int) -> None:
        (job_id,) = await self._enqueue_one("noop", number)
        await self._watcher.wait_for(job_id)

    async def hold(self, number: int) -> None:
        await self._enqueue_one("hold", number)

    async def _enqueue_one(self, entrypoint: str, number: int) -> list:
        # asyncpg allows one statement at a time on a connection; the driver waits its turn.
        return await self._queries.enqueue([entrypoint], [b"%d" % number], [0])
