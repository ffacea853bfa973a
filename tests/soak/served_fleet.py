"""Served workers of which some hang, some are slow, and some die and return: the others are called.

The workers are in this process, and know only the generated code.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Final

import msgspec
from uuid_utils import uuid7

from tenure.v1 import task_pb2
from tests.soak.result import Result
from tests.soak.scene import spotless
from tests.wire.client import Client
from tests.wire.served_host import ServedHost, ServedWorker, succeeded
from tests.wire.stage import STORES, Stage, open_stage

QUEUE: Final = "served"
TYPE: Final = "work"


class Size(msgspec.Struct, frozen=True):
    """How many workers of each kind, for how long, and how much they have to do."""

    healthy: int
    hanging: int
    slow: int
    dying: int
    seconds: float
    tasks: int
    slow_s: float
    settings: dict[str, int]
    tick_s: float


SIZES: Final = {
    False: Size(240, 20, 20, 20, 300.0, 20_000, 8.0, {}, 5.0),
    True: Size(
        12,
        2,
        2,
        2,
        8.0,
        200,
        0.8,
        {
            "lease_least_ms": 500,
            "served_lease_ms": 6_000,
            "served_tick_ms": 500,
            "served_call_ms": 1_000,
            "seat_round_ms": 100,
            "judge_ms": 100,
        },
        0.5,
    ),
}


async def run(small: bool) -> list[Result]:
    """Let a fleet work on each store."""
    size = SIZES[small]
    found = []
    for dialect in STORES:
        async with open_stage(dialect, size.settings) as stage:
            found += await _Fleet(stage, size, dialect).play()
    return found


class _Fleet:
    """Workers of four kinds, and what was done."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._dialect = dialect
        self._hosts: list[ServedHost] = []
        self._healthy: list[ServedWorker] = []
        self._done: dict[str, int] = {}

    async def _work(self, task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
        await asyncio.sleep(0.05)
        return succeeded(task)

    async def _host(self, target: str) -> tuple[ServedHost, ServedWorker]:
        host = ServedHost()
        await host.start()
        self._hosts.append(host)
        worker = ServedWorker(QUEUE, (TYPE,), self._work)
        worker.keeps_calls = False
        return host, await host.add(worker, target)

    async def play(self) -> list[Result]:
        server = await self._stage.server()
        client = await self._stage.client(server.grpc)
        size = self._size
        for _ in range(size.healthy):
            self._healthy.append((await self._host(server.grpc))[1])
        for _ in range(size.hanging):
            (await self._host(server.grpc))[1].before = _hang
        for _ in range(size.slow):
            (await self._host(server.grpc))[1].before = self._slow
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            dying = [group.create_task(self._die(server.grpc)) for _ in range(size.dying)]
            ids = await self._feed(client)
            await asyncio.sleep(max(0.0, began + size.seconds - time.monotonic()))
            for each in dying:
                each.cancel()
        gaps = [gap for worker in self._healthy for gap in _gaps(worker.call_times)]
        # What hung or died had tasks: they go to others when its lease is over.
        results = await client.wait_all(ids, 180.0)
        bad = [each for each in results.values() if each.state != task_pb2.TASK_STATE_SUCCEEDED]
        begun = sum(len(worker.begun) for host in self._hosts for worker in host.workers.values())
        for host in self._hosts:
            await host.stop(0)
        late = [gap for gap in gaps if gap > 1.1 * size.tick_s + 1.0]
        twice = [
            ref
            for host in self._hosts
            for worker in host.workers.values()
            for ref, count in worker.begun.items()
            if count > 1
        ]
        complaints = [f"a gap of {gap:.2f} s between calls" for gap in late[:5]]
        complaints += [f"task {each.task_id} did not succeed" for each in bad[:5]]
        complaints += [f"attempt {ref} was begun twice" for ref in twice[:5]]
        name = f"served fleet on {self._dialect}: {size.healthy} healthy workers beside "
        name += f"{size.hanging} that hang, {size.slow} slow and {size.dying} that die"
        measured = f"{len(gaps)} calls, worst gap {max(gaps, default=0):.2f} s, {begun} attempts"
        promised = f"called within {size.tick_s + 1:g} s, {len(ids)} tasks done, none begun twice"
        return [spotless(name, promised, measured, complaints)]

    async def _slow(self, _request: object) -> None:
        await asyncio.sleep(self._size.slow_s)

    async def _die(self, target: str) -> None:
        """Listen for a while, die, and come back as another incarnation."""
        while True:
            host, _ = await self._host(target)
            await asyncio.sleep(self._size.seconds / 10)
            await host.stop(0)
            await asyncio.sleep(self._size.seconds / 20)

    async def _feed(self, client: Client) -> list[str]:
        """Enqueue over half of the time, so that there is work whenever somebody fails."""
        ids: list[str] = []
        parts = 20
        for _ in range(parts):
            count = self._size.tasks // parts
            ids += await client.enqueue([new_task() for _ in range(count)])
            await asyncio.sleep(self._size.seconds / 2 / parts)
        return ids


def new_task() -> task_pb2.NewTask:
    options = task_pb2.TaskOptions(start_to_close_ms=600_000)
    return task_pb2.NewTask(
        task_id=str(uuid7()), type=TYPE, task_queue=QUEUE, options=options, input=b"1"
    )


async def _hang(_request: object) -> None:
    await asyncio.sleep(3_600)


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]
