"""Temporal: its dev server with a file, and standalone activities: one task is one activity."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.peers import adapter, record

TARGET = f"127.0.0.1:{adapter.PORT}"
SENT_AT_ONCE = 50
LIMIT = timedelta(minutes=30)
# There is no timeout for heartbeats unless it is set.
HEARTBEAT = timedelta(seconds=3) if adapter.IS_SHORT_RECOVERY else None
DONE = "ExecutionStatus = 'Completed'"
UNPRIVILEGED_ID = 65534


@activity.defn
async def noop(number: int) -> int:
    record.ran(number)
    return number


@activity.defn
async def hold(number: int) -> int:
    beating = asyncio.ensure_future(beat())
    await record.hold_async(number)
    beating.cancel()
    return number


async def beat() -> None:
    """Heartbeat, as the documentation asks of long activities."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(1)


@workflow.defn(sandboxed=False)
class Steps:
    @workflow.run
    async def run(self, number: int) -> int:
        for _ in range(adapter.STEPS):
            await workflow.execute_activity(noop, number, start_to_close_timeout=LIMIT)
        return number


@workflow.defn(sandboxed=False)
class Mapped:
    @workflow.run
    async def run(self, number: int) -> int:
        first = number * adapter.ITEMS
        calls = [
            workflow.execute_activity(noop, item, start_to_close_timeout=LIMIT)
            for item in range(first, first + adapter.ITEMS)
        ]
        return len(await asyncio.gather(*calls))


class Adapter(adapter.Adapter):
    chunk = 100
    server_is_unprivileged = True

    def server_command(self) -> list[str]:
        # The server runs as nobody, who must be able to write here.
        self._data = Path(tempfile.mkdtemp(prefix="tenure-temporal-", dir="/var/tmp"))
        if os.geteuid() == 0:
            os.chown(self._data, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        return [
            # It reads settings from the home of its user, who may not be root.
            *("env", f"HOME={self._data}"),
            *(str(adapter.PROGRAMS / "temporal"), "server", "start-dev", "--headless"),
            *("--ip", "127.0.0.1", "--port", str(adapter.PORT), "--log-level", "error"),
            *("--db-filename", str(self._data / "temporal.db")),
        ]

    def worker_command(self) -> list[str]:
        return [adapter.PYTHON, "-m", __name__]

    async def open(self) -> None:
        self._client = await _connect()

    async def enqueue(self, numbers: range) -> None:
        for first in range(0, len(numbers), SENT_AT_ONCE):
            part = numbers[first : first + SENT_AT_ONCE]
            await asyncio.gather(*(self._start(number) for number in part))

    async def completed(self) -> int:
        return (await self._client.count_activities(DONE)).count

    async def run(self, number: int) -> None:
        await (await self._start(number)).result()

    async def hold(self, number: int) -> None:
        await self._client.start_activity(
            hold,
            number,
            id=f"hold-{number}",
            task_queue=adapter.QUEUE,
            start_to_close_timeout=LIMIT,
            heartbeat_timeout=HEARTBEAT,
        )

    async def run_workflow(self, number: int) -> None:
        await self._client.execute_workflow(
            Steps.run, number, id=f"steps-{number}", task_queue=adapter.QUEUE
        )

    async def run_queued(self, number: int) -> None:
        # Its activities are queued.
        await self.run_workflow(number)

    async def run_map(self, number: int) -> None:
        await self._client.execute_workflow(
            Mapped.run, number, id=f"mapped-{number}", task_queue=adapter.QUEUE
        )

    def close(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)

    async def _start(self, number: int) -> object:
        return await self._client.start_activity(
            noop,
            number,
            id=f"noop-{number}",
            task_queue=adapter.QUEUE,
            start_to_close_timeout=LIMIT,
        )


async def _connect() -> Client:
    for _ in range(100):
        try:
            return await Client.connect(TARGET)
        except RuntimeError:
            # It listens before it is ready.
            await asyncio.sleep(0.2)
    return await Client.connect(TARGET)


async def main() -> None:
    """Work until ended."""
    client = await _connect()
    worker = Worker(
        client, task_queue=adapter.QUEUE, activities=[noop, hold], workflows=[Steps, Mapped]
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
