"""Procrastinate: ``procrastinate worker`` with asynchronous tasks."""

from __future__ import annotations

import asyncio

from procrastinate import App, PsycopgConnector

from benchmarks.peers import adapter, record

CONCURRENCY = 30
POLL_SECONDS = 0.005
DONE = "SELECT count(*) AS count FROM procrastinate_jobs WHERE status = 'succeeded'"

app = App(connector=PsycopgConnector(conninfo=adapter.URL))


@app.task(name="noop")
async def noop(number: int) -> None:
    record.ran(number)


@app.task(name="hold")
async def hold(number: int) -> None:
    await record.hold_async(number)


class Adapter(adapter.Adapter):
    def worker_command(self) -> list[str]:
        program = str(adapter.PROGRAMS / "procrastinate")
        return [program, f"--app={__name__}.app", "worker", f"--concurrency={CONCURRENCY}"]

    async def prepare(self) -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    async def enqueue(self, numbers: range) -> None:
        await noop.batch_defer_async(*({"number": number} for number in numbers))

    async def completed(self) -> int:
        row = await app.connector.execute_query_one_async(DONE)
        return row["count"]

    async def run(self, number: int) -> None:
        # There is nothing to wait for: a job has a status and no result.
        job_id = await noop.defer_async(number=number)
        while await self._is_open(job_id):  # noqa: ASYNC110 (nobody would set an event)
            await asyncio.sleep(POLL_SECONDS)

    async def _is_open(self, job_id: int) -> bool:
        status = await app.job_manager.get_job_status_async(job_id)
        return status.value != "succeeded"

    async def hold(self, number: int) -> None:
        await hold.defer_async(number=number)
