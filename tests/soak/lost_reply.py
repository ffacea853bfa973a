"""The answer that carries claimed tasks is lost: they are pending again in time, and run once."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tenure.v1.task_pb2 import TASK_STATE_DISPATCHED
from tests.bounds import WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.wire import checker
from tests.wire.client import Client, make_task
from tests.wire.proxy import Proxy
from tests.wire.stage import Stage, WorkerProcess

MODES: Final = ("session", "poll")
# A due task is looked at within a second.
LOOK_MS: Final = 1_000


class Size(msgspec.Struct, frozen=True):
    """How often an answer is lost, with how many tasks in it, and the delivery timeout."""

    rounds: int
    tasks: int
    delivery_timeout_ms: int
    scale: Scale


SIZES: Final = {False: Size(3, 20, 20_000, SCALES[False]), True: Size(1, 5, 1_500, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Lose answers of both modes, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        client = await stage.client(server.grpc)
        scenes = [_Lost(stage, client, size, mode) for mode in MODES]
        results = await asyncio.gather(*(each.play(dialect, server.grpc) for each in scenes))
        return [each for some in results for each in some]

    return await on_both_stores(size.scale, scene)


class _Lost:
    """One worker behind a proxy that loses answers."""

    def __init__(self, stage: Stage, client: Client, size: Size, mode: str) -> None:
        self._stage = stage
        self._client = client
        self._size = size
        self._mode = mode

    async def play(self, dialect: str, target: str) -> list[Result]:
        """Lose one answer after the other; say how long the tasks were away."""
        proxy = await self._stage.proxy(target)
        worker = await self._stage.worker(
            proxy.address, mode=self._mode, slots=self._size.tasks, queue=self._mode
        )
        complaints: list[str] = []
        away_ms: list[int] = []
        for _ in range(self._size.rounds):
            ids = await self._lose(proxy)
            complaints += await self._judge(worker, ids, away_ms)
        name = f"lost reply, {dialect}: {self._mode} mode"
        allowed_ms = self._size.delivery_timeout_ms + LOOK_MS
        return [
            Result(
                f"{name}: pending again",
                f"within the delivery timeout of {self._size.delivery_timeout_ms / 1_000:g} s "
                f"(looked at each {LOOK_MS / 1_000:g} s)",
                f"at the latest {max(away_ms) / 1_000:.2f} s after the hand-out",
                held=max(away_ms) <= allowed_ms * self._size.scale.slack,
            ),
            spotless(
                f"{name}: runs once and is charged nothing",
                "one start, attempt 1 undelivered, no failure, no interruption",
                f"{len(away_ms)} tasks",
                complaints,
            ),
        ]

    async def _lose(self, proxy: Proxy) -> list[str]:
        """Let the server hand out tasks, lose its answer, and cut the connection."""
        size = self._size
        proxy.is_muted = True
        tasks = [
            make_task(10, queue=self._mode, delivery_timeout_ms=size.delivery_timeout_ms)
            for _ in range(size.tasks)
        ]
        ids = await self._client.enqueue(tasks)
        await self._client.wait_state(ids, TASK_STATE_DISPATCHED, WORK_S)
        proxy.cut()
        proxy.is_muted = False
        return ids

    async def _judge(self, worker: WorkerProcess, ids: list[str], away_ms: list[int]) -> list[str]:
        await self._client.wait_all(ids, WORK_S)
        tasks = await self._client.get_all(ids)
        complaints = checker.check_succeeded(tasks, attempt=2)
        complaints += checker.check_once(worker.tail.lines, ids)
        complaints += checker.check_calm(worker.tail.lines)
        for task in tasks:
            if task.interruption_count:
                complaints.append(f"task {task.task_id} was charged an interruption")
            first = (await self._client.attempts(task.task_id))[0]
            if first.outcome != "undelivered":
                complaints.append(f"the first attempt of {task.task_id} is {first.outcome}")
            away_ms.append(first.ended_at_ms - first.handed_at_ms)
        return complaints
