"""Three servers on one PostgreSQL, one killed again and again under load: no loss, one outcome."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import asyncpg
import msgspec

from tests.bounds import LONG_WORK_S
from tests.chaos import checker as rows
from tests.chaos.journal import Acknowledged
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, spotless
from tests.wire import checker
from tests.wire.journal import merge
from tests.wire.load import Load
from tests.wire.proxy import Proxy
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage, open_stage

REPLICAS: Final = 3
MODES: Final = ("session", "session", "poll")


class Size(msgspec.Struct, frozen=True):
    """How often one is killed, how far apart, and how much work comes meanwhile."""

    kills: int
    every_s: float
    clients: int
    pause_s: float
    scale: Scale


SIZES: Final = {
    False: Size(12, 5.0, 4, 0.05, SCALES[False]),
    True: Size(2, 2.0, 2, 0.1, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Kill and restart the servers one after the other while tasks come and go."""
    size = SIZES[small]
    async with open_stage("postgres", size.scale.settings) as stage:
        return await _Run(stage, size).play()


class _Run:
    """The servers, each behind an address that stays, and everybody who knows all three."""

    def __init__(self, stage: Stage, size: Size) -> None:
        self._stage = stage
        self._size = size
        self._chance = random.Random(5)
        self._servers: list[ServerProcess] = []
        self._proxies: list[Proxy] = []

    async def play(self) -> list[Result]:
        # The first one makes the schema, so that the others need not wait for it.
        first = await self._stage.server()
        others = await asyncio.gather(*(self._stage.server() for _ in range(REPLICAS - 1)))
        self._servers = [first, *others]
        connection = await asyncpg.connect(self._stage.store)
        await connection.execute(rows.AUDIT_SQL)
        await connection.close()
        self._proxies = [await self._stage.proxy(each.grpc) for each in self._servers]
        addresses = [each.address for each in self._proxies]
        workers = await asyncio.gather(
            *(
                self._stage.worker(*addresses[n:], *addresses[:n], mode=mode, slots=20)
                for n, mode in enumerate(MODES)
            )
        )
        clients = [
            await self._stage.client(*addresses[n % REPLICAS :], *addresses[: n % REPLICAS])
            for n in range(self._size.clients)
        ]
        loads = [Load(each, sleep_ms=30, pause_s=self._size.pause_s) for each in clients]
        async with asyncio.TaskGroup() as group:
            for load in loads:
                group.create_task(load.run())
            await self._kill_again_and_again()
            for load in loads:
                load.is_stopping = True
        ids = [each for load in loads for each in load.ids]
        await clients[0].wait_all(ids, LONG_WORK_S)
        lines = merge([each.tail for each in workers])
        silent = sum(each.silence_count for each in clients)
        return await self._judge(ids, checker.acknowledged(lines, ids), silent) + [
            spotless(
                "replica loss: the workers",
                "nobody judged, no answer that no fault explains",
                f"{len(workers)} workers",
                checker.check_calm(lines) + checker.check_accepted(lines),
            )
        ]

    async def _kill_again_and_again(self) -> None:
        for _ in range(self._size.kills):
            await asyncio.sleep(self._size.every_s)
            index = self._chance.randrange(REPLICAS)
            await self._servers[index].kill()
            self._servers[index] = await self._stage.server()
            self._proxies[index].target = self._servers[index].grpc

    async def _judge(self, ids: list[str], told: Acknowledged, silent: int) -> list[Result]:
        stored = await rows.read_postgres(self._stage.store)
        chain = rows.check_audit(await rows.read_audit(self._stage.store))
        complaints = rows.check(told, stored)
        if len(stored.finished) < len(ids):
            complaints.append(f"only {len(stored.finished)} of {len(ids)} tasks are finished")
        extra = sum(len(each) - 1 for each in told.done.values())
        again = sum(map(len, stored.attempts.values()))
        return [
            spotless(
                f"replica loss: {self._size.kills} kills of {REPLICAS} servers, one each "
                f"{self._size.every_s:g} s under load",
                "no loss, no double outcome",
                f"{len(ids):,} tasks, {told.done_count:,} ends acknowledged, {extra} second ends, "
                f"{again} attempts repeated, {silent} calls sent again",
                complaints + [f"{extra} second ends"] * bool(extra),
            ),
            spotless(
                "replica loss: audit of every version of every task",
                "no version or attempt skipped, one birth, one end",
                "read back",
                chain,
            ),
        ]
