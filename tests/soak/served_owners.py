"""Three servers on PostgreSQL share served workers; one by one they stop, die, or stand still.

The workers are in this process, and know only the generated code.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import asyncpg
import msgspec

from tenure.v1 import task_pb2
from tests.soak.result import Result
from tests.soak.scene import spotless
from tests.soak.served_fleet import QUEUE, TYPE, new_task
from tests.wire.client import Client
from tests.wire.served_host import ServedHost, ServedWorker, succeeded
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage, open_stage

SERVERS: Final = 3
EVEN_WITHIN: Final = 2
SPREAD_SECONDS: Final = 15.0
RETURN_SECONDS: Final = 10.0


class Size(msgspec.Struct, frozen=True):
    """How many workers, how often something happens to a server, and for how long it pauses."""

    workers: int
    rounds: int
    every_s: float
    pause_s: float
    settings: dict[str, int]


SIZES: Final = {
    False: Size(90, 9, 20.0, 20.0, {}),
    True: Size(
        9,
        2,
        4.0,
        4.0,
        {
            "lease_least_ms": 500,
            "served_lease_ms": 12_000,
            "served_tick_ms": 300,
            "served_call_ms": 1_000,
            "seat_round_ms": 200,
            "seat_stale_ms": 1_500,
        },
    ),
}


async def run(small: bool) -> list[Result]:
    """Trouble the owners while tasks come and go."""
    size = SIZES[small]
    async with open_stage("postgres", size.settings) as stage:
        return await _Owners(stage, size).play()


class _Owners:
    """The servers, the workers, and what was seen."""

    def __init__(self, stage: Stage, size: Size) -> None:
        self._stage = stage
        self._size = size
        self._servers: list[ServerProcess] = []
        self._workers: list[ServedWorker] = []
        self._complaints: list[str] = []
        self._returns: list[float] = []
        self._spreads: list[float] = []
        self._ids: list[str] = []
        self._is_over = False

    async def play(self) -> list[Result]:
        first = await self._stage.server()
        self._servers = [first, await self._stage.server(), await self._stage.server()]
        host = ServedHost()
        await host.start()
        for number in range(self._size.workers):
            worker = ServedWorker(QUEUE, (TYPE,), _work)
            worker.keeps_calls = False
            await host.add(worker, self._servers[number % SERVERS].grpc)
            self._workers.append(worker)
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(self._feed())
            await self._spread("at the start")
            for number in range(self._size.rounds):
                await self._trouble(number)
            self._is_over = True
            await feeding
        client = await self._stage.client(self._servers[0].grpc)
        results = await client.wait_all(self._ids, 120.0)
        self._judge(results.values())
        await host.stop(0)
        hand_outs = await self._hand_outs()
        name = f"served owners: {self._size.workers} workers, {self._size.rounds} troubles"
        measured = (
            f"{len(self._ids)} tasks, {hand_outs} hand-outs, spread in at most "
            f"{max(self._spreads):.1f} s, called again after at most {max(self._returns):.1f} s"
        )
        promised = (
            f"even within {EVEN_WITHIN} after {SPREAD_SECONDS:g} s, next call within "
            f"{RETURN_SECONDS:g} s, nothing lost, nothing known killed, nothing run twice"
        )
        return [spotless(name, promised, measured, self._complaints)]

    async def _trouble(self, number: int) -> None:
        """Kill, pause or stop the next server; the others drive its workers meanwhile."""
        index = number % SERVERS
        server = self._servers[index]
        kind = ("kill", "pause", "stop")[number % 3]
        owned = await self._owned()
        began = time.monotonic()
        if kind == "pause":
            server.process.pause()
            await self._called_again(owned, began)
            await asyncio.sleep(max(0.0, began + self._size.pause_s - time.monotonic()))
            server.process.go_on()
        else:
            await (server.kill() if kind == "kill" else server.process.stop())
            await self._called_again(owned, began)
            self._servers[index] = await self._stage.server()
        await self._spread(f"after the {kind} of a server")
        await asyncio.sleep(max(0.0, began + self._size.every_s - time.monotonic()))

    async def _called_again(self, _owned: object, began: float) -> None:
        """Wait until every worker was called after the trouble began."""
        limit = began + RETURN_SECONDS + 5
        while time.monotonic() < limit:
            left = [each for each in self._workers if each.call_times[-1:] < [began]]
            if not left:
                break
            await asyncio.sleep(0.05)
        took = time.monotonic() - began
        self._returns.append(took)
        if took > RETURN_SECONDS:
            self._complaints.append(f"a worker was called again only after {took:.1f} s")

    async def _owned(self) -> list[int]:
        connection = await asyncpg.connect(self._stage.store)
        try:
            rows = await connection.fetch(
                "SELECT server_id, count(*) FROM tenure.seats WHERE is_open GROUP BY server_id"
            )
        finally:
            await connection.close()
        return sorted(row[1] for row in rows if row[0] is not None)

    async def _spread(self, when: str) -> None:
        """Wait until each of the servers has its share."""
        began = time.monotonic()
        share = self._size.workers / SERVERS
        counts: list[int] = []
        while time.monotonic() - began < SPREAD_SECONDS:
            counts = await self._owned()
            is_even = all(abs(each - share) <= EVEN_WITHIN for each in counts)
            if len(counts) == SERVERS and sum(counts) == self._size.workers and is_even:
                self._spreads.append(time.monotonic() - began)
                return
            await asyncio.sleep(0.2)
        self._spreads.append(SPREAD_SECONDS)
        self._complaints.append(f"{when} the seats are {counts}")

    async def _feed(self) -> None:
        client: Client = await self._stage.client(*[each.grpc for each in self._servers])
        while not self._is_over:
            self._ids += await client.enqueue([new_task() for _ in range(5)])
            await asyncio.sleep(0.25)

    def _judge(self, results: object) -> None:
        assert not isinstance(results, Sequence)
        for each in results:  # type: ignore[attr-defined]
            if each.state != task_pb2.TASK_STATE_SUCCEEDED:
                self._complaints.append(f"task {each.task_id} did not succeed")
        for worker in self._workers:
            twice = [ref for ref, count in worker.begun.items() if count > 1]
            self._complaints += [f"attempt {ref} was begun twice" for ref in twice]
            # Whatever was killed is known to have ended elsewhere: nothing has, here.
            self._complaints += [f"attempt {k.task_id} was killed" for k in worker.kills]

    async def _hand_outs(self) -> int:
        """Count attempts, and check from the rows that every task had one."""
        connection = await asyncpg.connect(self._stage.store)
        try:
            rows = await connection.fetch("SELECT attempt FROM tenure.history")
        finally:
            await connection.close()
        more = [row[0] for row in rows if row[0] > 1]
        if more:
            self._complaints.append(f"{len(more)} tasks had more than one attempt")
        return sum(row[0] for row in rows)


async def _work(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    await asyncio.sleep(0.3)
    return succeeded(task)
