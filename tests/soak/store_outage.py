"""PostgreSQL is away for a while: the server says so, judges nobody, and goes on by itself."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx
import msgspec

from tests.bounds import WORK_S
from tests.polling import eventually
from tests.postgres import PostgresServer
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, spotless
from tests.wire import checker
from tests.wire.call import NoAnswer
from tests.wire.client import Client, make_task
from tests.wire.journal import merge
from tests.wire.load import Load
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

RESUME_SECONDS: Final = 5.0
SAMPLE_SECONDS: Final = 0.25
# A request that was on its way when the database went may be answered by its own deadline.
ANSWER_SECONDS_MAX: Final = 35.0
MODES: Final = ("session", "session", "poll")


class Size(msgspec.Struct, frozen=True):
    """For how long the database is away, and how many tasks run meanwhile."""

    away_s: float
    tasks: int
    scale: Scale


SIZES: Final = {False: Size(20.0, 60, SCALES[False]), True: Size(4.0, 12, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Stop PostgreSQL under load and start it again."""
    size = SIZES[small]
    database = await asyncio.to_thread(PostgresServer.start)
    try:
        name = await asyncio.to_thread(database.create_database)
        with tempfile.TemporaryDirectory(prefix="tenure-soak-") as folder:
            async with Stage(database.dsn(name), Path(folder), size.scale.settings) as stage:
                return await _Outage(stage, database, size).play()
    finally:
        await asyncio.to_thread(database.close)


class _Outage:
    """One outage, seen from outside."""

    def __init__(self, stage: Stage, database: PostgresServer, size: Size) -> None:
        self._stage = stage
        self._database = database
        self._size = size
        # What was answered meanwhile, by way of asking.
        self._answers: dict[str, set[str]] = {"readyz": set(), "http": set(), "grpc": set()}
        self._slowest_s = 0.0

    async def play(self) -> list[Result]:
        size = self._size
        server = await self._stage.server()
        client = await self._stage.client(server.grpc)
        slots = size.tasks
        workers = await asyncio.gather(
            *(self._stage.worker(server.grpc, mode=mode, slots=slots) for mode in MODES)
        )
        tails = [each.tail for each in workers]
        lengths_s = [size.away_s / 2, size.away_s * 1.5]
        long = [make_task(round(lengths_s[n % 2] * 1_000)) for n in range(size.tasks)]
        ids = await client.enqueue(long)
        await eventually(
            lambda: sum(len(tail.of("start")) for tail in tails) >= size.tasks,
            "the start of all tasks",
            within_s=WORK_S,
        )
        loader = await self._stage.client(server.grpc)
        load = Load(loader, sleep_ms=20, batch=2)
        async with load.running():
            await asyncio.to_thread(self._database.stop, "immediate")
            await self._ask(server, client, size.away_s)
            await asyncio.to_thread(self._database.resume)
            up_at_s = time.monotonic()
            ready_s = await self._wait_ready(server, up_at_s)
            work_s = await self._wait_work(client, up_at_s)
        await client.wait_all([*ids, *load.ids], size.away_s * 2 + WORK_S)
        lines = merge(tails)
        complaints = checker.check_once(lines, [*ids, *load.ids]) + checker.check_calm(lines)
        complaints += checker.check_succeeded(await client.get_all(ids))
        for task in await client.get_all(load.ids):
            # If the database went between a commit and its answer, the task was handed out and
            # never delivered; it still runs only once.
            complaints += checker.check_succeeded([task], attempt=task.attempt)
        complaints += checker.check_accepted(lines)
        return [
            self._judge_answers(),
            bound("store outage: work goes on", RESUME_SECONDS, work_s, size.scale),
            bound("store outage: /readyz is true again", RESUME_SECONDS, ready_s, size.scale),
            spotless(
                f"store outage: PostgreSQL away for {size.away_s:g} s",
                "no worker judged, no task started again",
                f"{len(ids) + len(load.ids)} tasks, {len(workers)} workers",
                complaints,
            ),
        ]

    async def _ask(self, server: ServerProcess, client: Client, seconds: float) -> None:
        """Ask in every way until the time is over."""
        ends_at_s = time.monotonic() + seconds
        async with httpx.AsyncClient(
            base_url=f"http://{server.http}", timeout=ANSWER_SECONDS_MAX
        ) as http:
            while time.monotonic() < ends_at_s:
                began_s = time.monotonic()
                await asyncio.gather(self._get_ready(http), self._post(http), self._enqueue(client))
                self._slowest_s = max(self._slowest_s, time.monotonic() - began_s)
                await asyncio.sleep(SAMPLE_SECONDS)

    async def _get_ready(self, http: httpx.AsyncClient) -> None:
        answer = await http.get("/readyz")
        self._answers["readyz"].add(str(answer.status_code))

    async def _post(self, http: httpx.AsyncClient) -> None:
        body = {"type": "nothing", "queue": "nobody", "startToCloseMs": 1_000}
        answer = await http.post("/v1/tasks", json=body)
        self._answers["http"].add(f"{answer.status_code} {answer.json().get('error', '')}")

    async def _enqueue(self, client: Client) -> None:
        try:
            task = make_task(queue="nobody")
            await client.try_enqueue(task, timeout_s=ANSWER_SECONDS_MAX)
        except NoAnswer as error:
            code = "" if error.detail is None else error.detail.code
            self._answers["grpc"].add(f"{error.status.name} {code}")
        else:
            self._answers["grpc"].add("OK")

    async def _wait_ready(self, server: ServerProcess, up_at_s: float) -> float:
        async with httpx.AsyncClient(base_url=f"http://{server.http}", timeout=5.0) as http:
            await eventually(lambda: self._is_ready(http), "/readyz", within_s=WORK_S)
        return time.monotonic() - up_at_s

    async def _is_ready(self, http: httpx.AsyncClient) -> bool:
        return (await http.get("/readyz")).status_code == httpx.codes.OK

    async def _wait_work(self, client: Client, up_at_s: float) -> float:
        ids = await client.enqueue([make_task()])
        await client.wait_all(ids, WORK_S)
        return time.monotonic() - up_at_s

    def _judge_answers(self) -> Result:
        wanted = {
            "readyz": {"503"},
            "http": {"503 unavailable"},
            "grpc": {"UNAVAILABLE unavailable"},
        }
        said = "; ".join(f"{way}: {', '.join(sorted(x))}" for way, x in self._answers.items())
        return Result(
            "store outage: what is answered meanwhile",
            "/readyz 503, HTTP 503 and gRPC UNAVAILABLE with `unavailable`",
            f"{said}; slowest {self._slowest_s:.2f} s",
            held=self._answers == wanted,
        )
