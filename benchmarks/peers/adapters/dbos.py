"""DBOS: workflows on a queue, enqueued with its client; on PostgreSQL or SQLite by the URL."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading

import psycopg
from dbos import DBOS, DBOSClient

from benchmarks.peers import adapter, record

SCHEMA_SECONDS_MAX = 60
IS_SQLITE = adapter.URL.startswith("sqlite")
DONE = "SELECT count(*) FROM {}workflow_status WHERE status = 'SUCCESS'"


@DBOS.workflow(name="noop")
def noop(number: int) -> int:
    record.ran(number)
    return number


@DBOS.workflow(name="hold")
def hold(number: int) -> int:
    record.hold(number)
    return number


@DBOS.step()
def note(number: int) -> int:
    record.ran(number)
    return number


@DBOS.workflow(name="steps")
def steps(number: int) -> int:
    for _ in range(adapter.STEPS):
        note(number)
    return number


@DBOS.workflow(name="queued")
def queued(number: int) -> int:
    for _ in range(adapter.STEPS):
        DBOS.enqueue_workflow(adapter.QUEUE, noop, number).get_result()
    return number


@DBOS.workflow(name="mapped")
def mapped(number: int) -> int:
    first = number * adapter.ITEMS
    handles = [
        DBOS.enqueue_workflow(adapter.QUEUE, noop, item)
        for item in range(first, first + adapter.ITEMS)
    ]
    return len([handle.get_result() for handle in handles])


def launch() -> None:
    """Start DBOS in this process."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": adapter.URL,
            "application_version": "1",
            "log_level": "WARNING",
        }
    )
    DBOS.launch()
    DBOS.register_queue(adapter.QUEUE)


class Adapter(adapter.Adapter):
    chunk = 100
    # Each asks once per second.
    waiting_threads = 100

    def worker_command(self) -> list[str]:
        return [adapter.PYTHON, "-m", __name__, "work"]

    async def prepare(self) -> None:
        # The schema is made by the application itself when it starts.
        command = [adapter.PYTHON, "-m", __name__, "prepare"]
        await self.in_thread(
            lambda: subprocess.run(command, check=True, timeout=SCHEMA_SECONDS_MAX)
        )
        self._client = DBOSClient(system_database_url=adapter.URL)
        if IS_SQLITE:
            path = adapter.URL.removeprefix("sqlite:///")
            self._reader = sqlite3.connect(path, check_same_thread=False)
        else:
            self._reader = psycopg.connect(adapter.URL, autocommit=True)

    async def enqueue(self, numbers: range) -> None:
        for number in numbers:
            self._enqueue("noop", number)

    async def completed(self) -> int:
        done = DONE.format("" if IS_SQLITE else "dbos.")
        return self._reader.execute(done).fetchone()[0]

    async def run(self, number: int) -> None:
        await self.in_thread(lambda: self._enqueue("noop", number).get_result())

    async def hold(self, number: int) -> None:
        self._enqueue("hold", number)

    async def run_workflow(self, number: int) -> None:
        await self.in_thread(lambda: self._enqueue("steps", number).get_result())

    async def run_queued(self, number: int) -> None:
        await self.in_thread(lambda: self._enqueue("queued", number).get_result())

    async def run_map(self, number: int) -> None:
        await self.in_thread(lambda: self._enqueue("mapped", number).get_result())

    def _enqueue(self, name: str, number: int) -> object:
        options = {"workflow_name": name, "queue_name": adapter.QUEUE, "app_version": "1"}
        return self._client.enqueue(options, number)


if __name__ == "__main__":
    launch()
    if sys.argv[1] == "work":
        threading.Event().wait()
    DBOS.destroy()
