"""Three engine processes on one PostgreSQL, killed and restarted while they work."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from pathlib import Path
from typing import Final

import asyncpg
import msgspec

from tenure.core.task.record import NewTask
from tenure.engine.access.command import CreateNamespace
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.task.command import EnqueueTasks
from tenure.errors import AlreadyExists
from tenure.store.postgres import PostgresStore
from tests.chaos import checker, journal
from tests.chaos.engine_process import NAMESPACE, QUEUE, SPEC, TYPE
from tests.chaos.process import EngineProcess
from tests.postgres import PostgresServer
from tests.soak.result import Result

ENGINES: Final = 3
CHUNK: Final = 50


class Size(msgspec.Struct, frozen=True):
    """How many tasks, claimers and kills, and over how long the tasks come."""

    tasks: int
    claimers: int
    kills: int
    kill_every_s: float
    seconds_max: float


SIZES: Final = {False: Size(10_000, 50, 20, 1.5, 300.0), True: Size(400, 12, 2, 0.8, 60.0)}


async def run(small: bool) -> list[Result]:
    """Run the engines until every task is finished, killing one of them again and again."""
    size = SIZES[small]
    server = await asyncio.to_thread(PostgresServer.start)
    try:
        name = await asyncio.to_thread(server.create_database)
        with tempfile.TemporaryDirectory(prefix="tenure-soak-") as folder:
            return await _Run(server.dsn(name), Path(folder), size).play()
    finally:
        await asyncio.to_thread(server.close)


class _Run:
    """One run: the processes, their journals, and the tasks that were enqueued."""

    def __init__(self, dsn: str, folder: Path, size: Size) -> None:
        self._dsn = dsn
        self._folder = folder
        self._size = size
        self._random = random.Random(7)
        self._journals: list[Path] = []
        self._engines: list[EngineProcess] = []
        self._kills = 0

    async def play(self) -> list[Result]:
        store = PostgresStore(self._dsn)
        await store.open()
        await store.close()
        connection = await asyncpg.connect(self._dsn)
        await connection.execute(checker.AUDIT_SQL)
        began = time.monotonic()
        try:
            for _ in range(ENGINES):
                self._engines.append(await self._start())
            async with asyncio.timeout(self._size.seconds_max), asyncio.TaskGroup() as group:
                group.create_task(self._enqueue())
                group.create_task(self._kill_again_and_again())
                group.create_task(self._wait_finished(connection))
        finally:
            await asyncio.gather(*(each.stop() for each in self._engines))
            await connection.close()
        return await self._judge(time.monotonic() - began)

    async def _start(self) -> EngineProcess:
        number = len(self._journals)
        path = self._folder / f"journal-{number}"
        self._journals.append(path)
        return await EngineProcess.start(
            self._dsn, path, claimers=-(-self._size.claimers // ENGINES), producers=0, seed=number
        )

    async def _enqueue(self) -> None:
        """Enqueue all tasks over the time of the kills, from an engine that nobody kills."""
        clock = SystemClock()
        own = journal.Journal(self._folder / "journal-enqueued")
        chunks = self._size.tasks // CHUNK
        pause_s = self._size.kills * self._size.kill_every_s / chunks
        async with Engine(PostgresStore(self._dsn), clock=clock, services=()) as engine:
            with contextlib.suppress(AlreadyExists):
                await engine.submit(CreateNamespace(name=NAMESPACE))
            for _ in range(chunks):
                new = tuple(
                    NewTask(id=clock.new_id(), type=TYPE, queue=QUEUE, spec=SPEC)
                    for _ in range(CHUNK)
                )
                for each in await engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=new)):
                    own.enqueued(each.task_id)
                await asyncio.sleep(pause_s)

    async def _kill_again_and_again(self) -> None:
        for _ in range(self._size.kills):
            await asyncio.sleep(self._size.kill_every_s * self._random.uniform(0.5, 1.5))
            index = self._random.randrange(ENGINES)
            await self._engines[index].kill()
            self._kills += 1
            self._engines[index] = await self._start()

    async def _wait_finished(self, connection: asyncpg.Connection) -> None:
        count = 0
        while count < self._size.tasks:
            await asyncio.sleep(0.2)
            count = await connection.fetchval("SELECT count(*) FROM history")

    async def _judge(self, seconds: float) -> list[Result]:
        told = journal.read([*self._journals, self._folder / "journal-enqueued"])
        stored = await checker.read_postgres(self._dsn)
        audit = await checker.read_audit(self._dsn)
        complaints = checker.check(told, stored)
        chain = checker.check_audit(audit)
        extra = sum(len(each) - 1 for each in told.done.values())
        retried = sum(map(len, stored.attempts.values()))
        tasks = self._size.tasks
        is_complete = len(stored.finished) == tasks and not stored.live
        return [
            Result(
                f"replicas: {tasks:,} tasks, {self._size.claimers} claimers, "
                f"{self._kills} SIGKILLs of {ENGINES} engines",
                "every task exactly one accepted outcome",
                f"{len(stored.finished):,} finished, {told.done_count:,} acknowledged, "
                f"{extra} second outcomes, {len(complaints)} broken promises, {seconds:.0f} s",
                held=is_complete and not complaints and extra == 0,
                details=tuple(complaints),
            ),
            Result(
                "replicas: audit of every version of every task",
                "no version or attempt skipped, one birth, one end",
                f"{sum(map(len, audit.values())):,} versions, {retried:,} attempts repeated, "
                f"{len(chain)} broken rules",
                held=not chain and len(audit) == tasks,
                details=tuple(chain),
            ),
        ]
