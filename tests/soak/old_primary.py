"""The primary is replaced by its standby and comes back: no server ever writes to it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import asyncpg
import msgspec

from tests.bounds import WORK_S
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
# What servers write to all the time, whatever they are asked.
TRACES: Final = {
    "tasks": "SELECT count(*) FROM tasks",
    "history": "SELECT count(*) FROM history",
    "leases": "SELECT coalesce(max(beat_at_ms), 0) FROM leases",
    "servers": "SELECT max(touched_at_ms) FROM servers",
}


class Size(msgspec.Struct, frozen=True):
    """How many servers there are, and for how long there is load in each part."""

    servers: int
    load_s: float
    scale: Scale


SIZES: Final = {False: Size(3, 10.0, SCALES[False]), True: Size(2, 1.0, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Fail over under load, bring the old primary back, restart servers in between."""
    size = SIZES[small]
    first = await asyncio.to_thread(PostgresServer.start)
    try:
        name = await asyncio.to_thread(first.create_database)
        second = await asyncio.to_thread(PostgresServer.start_standby, first)
        try:
            with tempfile.TemporaryDirectory(prefix="tenure-soak-") as folder:
                dsn = first.dsn_with(second, name)
                async with Stage(dsn, Path(folder), size.scale.settings) as stage:
                    return await _FailOver(stage, first, second, name, size).play()
        finally:
            await asyncio.to_thread(second.close)
    finally:
        await asyncio.to_thread(first.close)


class _FailOver:
    """Two PostgreSQL servers of which the second replaces the first, seen from outside."""

    def __init__(
        self, stage: Stage, first: PostgresServer, second: PostgresServer, name: str, size: Size
    ) -> None:
        self._stage = stage
        self._first = first
        self._second = second
        self._name = name
        self._size = size

    async def play(self) -> list[Result]:
        size, stage = self._size, self._stage
        servers = [await stage.server() for _ in range(size.servers)]
        client = await stage.client(*(each.grpc for each in servers))
        for server in servers:
            await stage.worker(server.grpc, slots=20)
        load = Load(await stage.client(*(each.grpc for each in servers)), sleep_ms=20, batch=2)
        async with load.running():
            await asyncio.sleep(size.load_s)
            await asyncio.to_thread(self._first.stop, "immediate")
            await asyncio.to_thread(self._second.promote)
            resumed_s = await self._wait_work(client)
            await asyncio.to_thread(self._first.stand_alone)
            await asyncio.to_thread(self._first.resume)
            traces = await self._traces()
            servers[0] = await self._restart(servers[0])
            await asyncio.sleep(size.load_s)
        restarted = await stage.client(servers[0].grpc)
        ids = await restarted.enqueue([make_task()])
        answers = await self._ask_without_new_primary(servers)
        await asyncio.to_thread(self._second.resume)
        back_s = await self._wait_work(client)
        await self._wait_work(restarted)
        await client.wait_all([*ids, *load.ids], WORK_S)
        complaints = checker.check_accepted(merge(stage.tails))
        for task in await client.get_all([*ids, *load.ids]):
            complaints += checker.check_succeeded([task], attempt=task.attempt)
        after = await self._traces()
        complaints += [f"the old primary was written to: {traces} then {after}"] * (after != traces)
        complaints += [f"answered {each}" for each in answers - {"UNAVAILABLE"}]
        return [
            bound(
                "old primary: work goes on after promotion", RESUME_SECONDS, resumed_s, size.scale
            ),
            bound("old primary: and after a restart", RESUME_SECONDS, back_s, size.scale),
            spotless(
                "old primary: it returns, servers restart, the new one is away for a while",
                "nothing acknowledged is lost, the old one is never written to",
                f"{len(ids) + len(load.ids)} tasks, {len(servers)} servers",
                complaints,
            ),
        ]

    async def _restart(self, server: ServerProcess) -> ServerProcess:
        await server.kill()
        return await self._stage.server()

    async def _wait_work(self, client: Client) -> float:
        began_s = time.monotonic()
        await client.wait_all(await client.enqueue([make_task()]), WORK_S)
        return time.monotonic() - began_s

    async def _ask_without_new_primary(self, servers: list[ServerProcess]) -> set[str]:
        """Stop the new primary: only the old one is there, and nobody may take it."""
        await asyncio.to_thread(self._second.stop, "immediate")
        answers = set()
        ends_at_s = time.monotonic() + 2 * self._size.load_s
        clients = [await self._stage.client(each.grpc) for each in servers]
        while time.monotonic() < ends_at_s:
            for client in clients:
                try:
                    await client.try_enqueue(make_task(), timeout_s=WORK_S)
                except NoAnswer as error:
                    answers.add(error.status.name)
                else:
                    answers.add("OK")
            await asyncio.sleep(0.05)
        return answers

    async def _traces(self) -> dict[str, int]:
        """Return what any write of a server to the old primary would change."""
        connection = await asyncpg.connect(self._first.dsn(self._name))
        try:
            return {name: await connection.fetchval(sql) for name, sql in TRACES.items()}
        finally:
            await connection.close()
