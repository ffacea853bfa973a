"""Absurd: tasks whose steps are checkpoints in PostgreSQL; workflows alone."""

from __future__ import annotations

import sys

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd, TaskContext
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.peers import adapter, record

# Threads of the worker, each with one task at a time.
CONCURRENCY = 32


class Adapter(adapter.Adapter):
    def worker_command(self) -> list[str]:
        return [adapter.PYTHON, "-m", __name__]

    async def prepare(self) -> None:
        with psycopg.connect(adapter.URL, autocommit=True) as connection:
            connection.execute(BUNDLED_SCHEMA_SQL)
        app = Absurd(adapter.URL, adapter.QUEUE)
        app.create_queue()
        app.close()

    async def open(self) -> None:
        self._app = AsyncAbsurd(adapter.URL, adapter.QUEUE)

    async def run_workflow(self, number: int) -> None:
        spawned = await self._app.spawn("steps", number, queue=adapter.QUEUE)
        await self._app.await_task_result(spawned["task_id"])


def main() -> None:
    """Work until ended."""
    app = Absurd(adapter.URL, adapter.QUEUE)

    @app.register_task(name="steps")
    def steps(number: int, ctx: TaskContext) -> int:
        def note() -> int:
            record.ran(number)
            return number

        for _ in range(adapter.STEPS):
            ctx.step("note", note)
        return number

    app.start_worker(concurrency=CONCURRENCY)


if __name__ == "__main__":
    sys.exit(main())
