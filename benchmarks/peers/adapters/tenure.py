"""Tenure: ``tenure server`` on SQLite or PostgreSQL by the URL, and workers in session mode."""

from __future__ import annotations

import asyncio
import sqlite3

import asyncpg

from benchmarks.peers import adapter, record
from tenure import Client, Worker, WorkflowContext, activity, step, workflow

TARGET = f"127.0.0.1:{adapter.PORT}"
CONCURRENCY = 500
DONE = "SELECT count(*) FROM history WHERE state = 'succeeded'"
IS_SQLITE = adapter.URL.startswith("sqlite")


@activity(start_to_close="30m")
async def noop(number: int) -> int:
    record.ran(number)
    return number


@activity(start_to_close="30m")
async def hold(number: int) -> int:
    await record.hold_async(number)
    return number


@step
async def note(number: int) -> int:
    record.ran(number)
    return number


@workflow
async def steps(ctx: WorkflowContext, number: int) -> int:
    for _ in range(adapter.STEPS):
        await ctx.step(note, number)
    return number


@workflow
async def queued(ctx: WorkflowContext, number: int) -> int:
    for _ in range(adapter.STEPS):
        await ctx.execute(noop, number)
    return number


@workflow
async def mapped(ctx: WorkflowContext, number: int) -> int:
    first = number * adapter.ITEMS
    results = await ctx.map(noop, range(first, first + adapter.ITEMS))
    return results.total


class Adapter(adapter.Adapter):
    def server_command(self) -> list[str]:
        return [
            *(adapter.PYTHON, "-m", "tenure.cli", "server", "--store", adapter.URL),
            *("--http", "127.0.0.1:0", "--grpc", TARGET, "--log-level", "warning"),
            *(("--session-grace", "500ms") if adapter.IS_SHORT_RECOVERY else ()),
        ]

    def worker_command(self) -> list[str]:
        return [adapter.PYTHON, "-m", __name__]

    async def open(self) -> None:
        self._client = Client(TARGET)
        await self._client.__aenter__()
        if IS_SQLITE:
            self._sqlite = sqlite3.connect(adapter.URL.removeprefix("sqlite:///"))
        else:
            self._postgres = await asyncpg.connect(adapter.URL)

    async def enqueue(self, numbers: range) -> None:
        await self._client.enqueue_many([noop.call(number) for number in numbers])

    async def completed(self) -> int:
        if IS_SQLITE:
            return int(self._sqlite.execute(DONE).fetchone()[0])
        return int(await self._postgres.fetchval(DONE))

    async def run(self, number: int) -> None:
        await self._client.run(noop, number)

    async def hold(self, number: int) -> None:
        await self._client.enqueue(hold, number)

    async def run_workflow(self, number: int) -> None:
        await (await self._client.start(steps, number)).result()

    async def run_queued(self, number: int) -> None:
        await (await self._client.start(queued, number)).result()

    async def run_map(self, number: int) -> None:
        await (await self._client.start(mapped, number)).result()


async def main() -> None:
    """Work until ended."""
    worker = Worker(
        TARGET,
        activities=[noop, hold],
        workflows=[steps, queued, mapped],
        max_concurrent=CONCURRENCY,
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
