"""All workers, the server and the database are replaced while runs sleep and wait."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tenure import Client, RunHandle
from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.postgres import PostgresServer
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import go_on, sleep_and_wait
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

STEPS: Final = (1, 2, 3)


class Size(msgspec.Struct, frozen=True):
    """How many runs, and how long they sleep while everything is replaced."""

    runs: int
    sleep_ms: int
    scale: Scale


SIZES: Final = {False: Size(500, 30_000, SCALES[False]), True: Size(10, 3_000, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Replace everything, first in sleeps, then in waits, on both stores."""
    size = SIZES[small]
    results: list[Result] = []
    for dialect in ("sqlite", "postgres"):
        async with _open(dialect, size) as (stage, database):
            results.append(await _Replacement(stage, database, size, dialect).play())
    return results


@contextlib.asynccontextmanager
async def _open(dialect: str, size: Size) -> AsyncIterator[tuple[Stage, PostgresServer | None]]:
    """Make a store; a database server of its own, which can be restarted."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-soak-")))
        database = None
        url = f"sqlite:///{folder / 'tenure.db'}"
        if dialect == "postgres":
            database = await asyncio.to_thread(PostgresServer.start)
            stack.push_async_callback(asyncio.to_thread, database.close)
            url = database.dsn(await asyncio.to_thread(database.create_database))
        stage = await stack.enter_async_context(Stage(url, folder, size.scale.settings))
        yield stage, database


class _Replacement:
    """Runs, and everything that they need, which is replaced under them."""

    def __init__(
        self, stage: Stage, database: PostgresServer | None, size: Size, dialect: str
    ) -> None:
        self._stage = stage
        self._database = database
        self._size = size
        self._dialect = dialect
        self._workers: list[SdkWorker] = []

    async def play(self) -> Result:
        size = self._size
        server = await self._stage.server()
        # The address of the service stays, as it does behind a load balancer.
        proxy = await self._stage.proxy(server.grpc)
        worker = await self._worker(proxy.address)
        async with Client(proxy.address) as client:
            runs = [await client.start(sleep_and_wait, size.sleep_ms) for _ in range(size.runs)]
            # On a slow machine some are awake before the last one sleeps.
            for statuses in (("sleeping", "waiting"), ("waiting",)):
                await self._wait_all(client, statuses)
                await worker.process.kill()
                server = await self._replace(server)
                proxy.target = server.grpc
                worker = await self._worker(proxy.address)
            for handle in runs:
                await handle.signal(go_on, 1)
            results = [await each.result(timeout=LONG_WORK_S) for each in runs]
        return spotless(
            f"runs, everything replaced in sleeps and in waits, {self._dialect}",
            "each step of each run is done once",
            f"{size.runs} runs, {len(self._workers)} workers",
            self._judge(runs, results),
        )

    async def _worker(self, target: str) -> SdkWorker:
        made = await SdkWorker.start(self._stage, target, slots=self._size.runs)
        self._workers.append(made)
        return made

    async def _wait_all(self, client: Client, statuses: Sequence[str]) -> None:
        async def are_all() -> bool:
            lists = [client.list_runs(status=status) for status in statuses]
            found = {run.run_id for runs in lists async for run in runs}
            return len(found) == self._size.runs

        await eventually(are_all, f"all runs {statuses}", within_s=LONG_WORK_S, every_s=0.1)

    async def _replace(self, server: ServerProcess) -> ServerProcess:
        """Kill the server and crash the database; start both again."""
        await server.kill()
        if self._database is not None:
            await asyncio.to_thread(self._database.stop, "immediate")
            await asyncio.to_thread(self._database.resume)
        return await self._stage.server()

    def _judge(self, runs: list[RunHandle[list[int]]], results: list[list[int]]) -> list[str]:
        complaints = [f"a result is {each}" for each in results if each != list(STEPS)]
        done = Counter(
            (line.task_id, int(line.text))
            for worker in self._workers
            for line in worker.tail.of("step")
        )
        complaints += [
            f"step {number} of run {handle.run_id} was done {done[handle.run_id, number]} times"
            for handle in runs
            for number in STEPS
            if done[handle.run_id, number] != 1
        ]
        return complaints
