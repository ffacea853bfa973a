"""The backend of the work lane stands still: callers are told, heartbeats and new work go on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Final

import asyncpg
import msgspec

from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_stores, spotless
from tests.wire import checker
from tests.wire.call import NoAnswer
from tests.wire.client import Client, make_task
from tests.wire.journal import merge
from tests.wire.load import Load
from tests.wire.stage import Stage

ANSWER_SECONDS: Final = 6.0
SAMPLE_SECONDS: Final = 0.1
# A server in which work waits for seconds refuses new work besides.
ANSWERS: Final = {"OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}
# A backend that was paused may still be listed while it ends.
LANE_SQL: Final = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'tenure work'
ORDER BY backend_start DESC
LIMIT 1
"""


class Size(msgspec.Struct, frozen=True):
    """How often a backend is paused and for how long, and how many tasks run meanwhile."""

    pauses: int
    paused_s: float
    tasks: int
    scale: Scale


SIZES: Final = {False: Size(5, 20.0, 100, SCALES[False]), True: Size(1, 8.0, 10, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Pause the backend of the work lane under load, again and again."""
    size = SIZES[small]
    return await on_stores(("postgres",), size.scale, lambda stage, _: _Pause(stage, size).play())


class _Pause:
    """A server, its workers and clients, and the backend that is paused."""

    def __init__(self, stage: Stage, size: Size) -> None:
        self._stage = stage
        self._size = size
        self._slowest_s = 0.0
        self._answers: set[str] = set()
        self._accepted: list[str] = []

    async def play(self) -> list[Result]:
        size, stage = self._size, self._stage
        server = await stage.server()
        client = await stage.client(server.grpc)
        workers = [await stage.worker(server.grpc, slots=size.tasks * 2) for _ in range(2)]
        tails = [each.tail for each in workers]
        long = [make_task(round(size.paused_s * 1_200)) for _ in range(size.tasks)]
        ids = await client.enqueue(long)
        await eventually(
            lambda: sum(len(tail.of("start")) for tail in tails) >= size.tasks,
            "the start of all tasks",
            within_s=WORK_S,
        )
        load = Load(await stage.client(server.grpc), sleep_ms=20, batch=1)
        async with load.running():
            pauses_s = [await self._pause(client, server.grpc) for _ in range(size.pauses)]
        await client.wait_all([*ids, *load.ids, *self._accepted], size.paused_s * 2 + WORK_S)
        lines = merge(tails)
        complaints = checker.check_once(lines, [*ids, *load.ids, *self._accepted])
        complaints += checker.check_calm(lines) + checker.check_accepted(lines)
        complaints += checker.check_succeeded(await client.get_all(ids))
        complaints += [f"answer {each}" for each in self._answers - ANSWERS]
        return [
            bound(
                "paused backend: every call is answered",
                ANSWER_SECONDS,
                self._slowest_s,
                size.scale,
            ),
            bound(
                "paused backend: work goes on beside it", ANSWER_SECONDS, max(pauses_s), size.scale
            ),
            spotless(
                f"paused backend: {size.pauses} pauses of {size.paused_s:g} s",
                "no worker judged, nothing lost, nothing started again",
                f"{len(ids) + len(load.ids) + len(self._accepted)} tasks, answers "
                f"{', '.join(sorted(self._answers))}",
                complaints,
            ),
        ]

    async def _pause(self, client: Client, target: str) -> float:
        """Pause the backend; return how long it took until new work was done beside it."""
        pid = await self._lane_pid()
        os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
        asking = asyncio.create_task(self._ask(target, began_s + self._size.paused_s))
        try:
            ids = await client.enqueue([make_task()])
            await client.wait_all(ids, WORK_S)
            took_s = time.monotonic() - began_s
            await asking
        finally:
            os.kill(pid, signal.SIGCONT)
            asking.cancel()
        return took_s

    async def _lane_pid(self) -> int:
        """Find the backend of the lane; a lane that is cut off has another one then."""
        connection = await asyncpg.connect(self._stage.store)
        try:
            return int(
                await eventually(
                    lambda: connection.fetchval(LANE_SQL), "a backend", within_s=WORK_S
                )
            )
        finally:
            await connection.close()

    async def _ask(self, target: str, until_s: float) -> None:
        """Enqueue until the time is over, each time once, beside whoever still waits."""
        async with asyncio.TaskGroup() as group:
            client = await self._stage.client(target)
            while time.monotonic() < until_s:
                group.create_task(self._enqueue(client))
                await asyncio.sleep(SAMPLE_SECONDS)

    async def _enqueue(self, client: Client) -> None:
        task = make_task()
        began_s = time.monotonic()
        try:
            await client.try_enqueue(task, timeout_s=WORK_S)
        except NoAnswer as error:
            self._answers.add(error.status.name)
        else:
            self._answers.add("OK")
            self._accepted.append(task.task_id)
        self._slowest_s = max(self._slowest_s, time.monotonic() - began_s)
