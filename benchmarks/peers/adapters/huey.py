"""Huey on SQLite, with fsync on."""

from __future__ import annotations

import sqlite3

from huey import SqliteHuey

from benchmarks.peers import adapter, record

PATH = adapter.URL.removeprefix("sqlite:///")
RESULT_SECONDS_MAX = 30
# A task leaves the queue when it is taken; what is done is what has a result.
DONE = "SELECT count(*) FROM kv"

huey = SqliteHuey("bench", filename=PATH, fsync=True)


@huey.task()
def noop(number: int) -> int:
    record.ran(number)
    return number


@huey.task()
def hold(number: int) -> int:
    record.hold(number)
    return number


class Adapter(adapter.Adapter):
    def worker_command(self) -> list[str]:
        return [str(adapter.PROGRAMS / "huey_consumer"), "--quiet", f"{__name__}.huey"]

    async def open(self) -> None:
        self._reader = sqlite3.connect(PATH, check_same_thread=False)
        self._taken = 0

    async def enqueue(self, numbers: range) -> None:
        for number in numbers:
            noop(number)

    async def completed(self) -> int:
        return self._taken + self._reader.execute(DONE).fetchone()[0]

    async def run(self, number: int) -> None:
        await self.in_thread(self._run, number)
        # Reading a result removes it.
        self._taken += 1

    async def hold(self, number: int) -> None:
        hold(number)

    def _run(self, number: int) -> None:
        noop(number).get(blocking=True, timeout=RESULT_SECONDS_MAX)
