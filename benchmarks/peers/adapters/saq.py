"""SAQ on Redis."""

from __future__ import annotations

import asyncio

from saq import Queue

from benchmarks.peers import adapter, record

queue = Queue.from_url(f"{adapter.URL}/0", name=adapter.QUEUE)
SENT_AT_ONCE = 50
HOLD_SECONDS = 3_600


async def noop(_: object, *, number: int) -> None:
    record.ran(number)


async def hold(_: object, *, number: int) -> None:
    await record.hold_async(number)


settings = {"queue": queue, "functions": [noop, hold], "concurrency": 100}


class Adapter(adapter.Adapter):
    chunk = 500

    def worker_command(self) -> list[str]:
        return [str(adapter.PROGRAMS / "saq"), f"{__name__}.settings", "--quiet"]

    async def open(self) -> None:
        await queue.connect()
        self._sent = 0

    async def enqueue(self, numbers: range) -> None:
        for first in range(0, len(numbers), SENT_AT_ONCE):
            part = numbers[first : first + SENT_AT_ONCE]
            await asyncio.gather(*(queue.enqueue("noop", number=number) for number in part))
        self._sent += len(numbers)

    async def completed(self) -> int:
        return self._sent - await queue.count("incomplete")

    async def run(self, number: int) -> None:
        self._sent += 1
        await queue.apply("noop", number=number)

    async def hold(self, number: int) -> None:
        self._sent += 1
        # Without retries SAQ gives an abandoned job up; its timeout is ten seconds by default.
        await queue.enqueue("hold", number=number, retries=3, timeout=HOLD_SECONDS, heartbeat=0)
