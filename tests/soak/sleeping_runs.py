"""Runs that sleep: they cost nothing, and those due at once go on at once."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from tenure import Client
from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.soak.process_usage import usage_of
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import nap_until
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

WAKE_S: Final = 5.0
CORE_SHARE: Final = 0.02
# Memory is given back late.
GROWTH_BYTES: Final = 8 * 2**20
# The page caches of SQLite have 64 MiB for each connection, and fill as samples read all rows; what
# leaks would grow in each window.
WINDOWS_MAX: Final = 6
STARTED_AT_ONCE: Final = 200
HOURS_S: Final = 7_200.0
SLOTS: Final = 500


class Size(msgspec.Struct, frozen=True):
    """How many runs are due at once, how many sleep on, and how long those are watched."""

    due: int
    due_in_s: float
    sleeping: int
    watched_s: float
    scale: Scale
    is_small: bool


SIZES: Final = {
    False: Size(1_000, 20.0, 100_000, 30.0, SCALES[False], is_small=False),
    True: Size(30, 4.0, 60, 0.5, SCALES[True], is_small=True),
}


async def run(small: bool) -> list[Result]:
    """Let many runs sleep on both stores."""
    size = SIZES[small]
    return await on_both_stores(size.scale, lambda stage, name: _Sleep(stage, size, name).play())


class _Sleep:
    """A server, a worker, and runs that sleep."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._name = f"sleeping runs, {dialect}"

    async def play(self) -> list[Result]:
        server = await self._stage.server()
        worker = await SdkWorker.start(self._stage, server.grpc, slots=SLOTS)
        async with Client(server.grpc) as client:
            return [
                await self._wake_together(client, worker),
                *await self._sleep_on(client, server),
            ]

    async def _wake_together(self, client: Client, worker: SdkWorker) -> Result:
        size = self._size
        until_s = time.time() + size.due_in_s
        await _start(client, size.due, until_s)
        await eventually(
            lambda: len(worker.tail.of("step")) >= size.due, "all awake", within_s=LONG_WORK_S
        )
        last_s = max(line.wall_ms for line in worker.tail.of("step")) / 1_000
        return bound(
            f"{self._name}: {size.due:,} due at once are past their next step",
            WAKE_S,
            last_s - until_s,
            size.scale,
        )

    async def _sleep_on(self, client: Client, server: ServerProcess) -> list[Result]:
        size = self._size
        idle, _ = await self._watch(server)
        await _start(client, size.sleeping, time.time() + HOURS_S)
        await _all_asleep(client)
        # What has just been written is looked after once more.
        await self._watch(server)
        share, grown = await self._watch(server)
        growths = [grown]
        while growths[-1] >= GROWTH_BYTES and len(growths) < WINDOWS_MAX:
            share, grown = await self._watch(server)
            growths.append(grown)
        return [self._cost(idle, share), self._growth(growths)]

    async def _watch(self, server: ServerProcess) -> tuple[float, int]:
        """Return the share of a core that a server uses, and by how much its memory grows."""
        before = usage_of(server.process.pid)
        await asyncio.sleep(self._size.watched_s)
        after = usage_of(server.process.pid)
        share = (after.cpu_s - before.cpu_s) / (after.at_s - before.at_s)
        return share, after.memory_bytes - before.memory_bytes

    def _cost(self, idle: float, share: float) -> Result:
        """Tell the cost; in a short time on a busy machine it says nothing."""
        return Result(
            f"{self._name}: {self._size.sleeping:,} sleeping, cost of the server",
            f"under {CORE_SHARE:.0%} of a core",
            f"{share - idle:.2%} (idle {idle:.2%}, with them {share:.2%})",
            held=None if self._size.is_small else share - idle < CORE_SHARE,
        )

    def _growth(self, growths: list[int]) -> Result:
        shown = ", ".join(f"{each / 2**20:+.1f}" for each in growths)
        return Result(
            f"{self._name}: {self._size.sleeping:,} sleeping, memory of the server",
            "does not grow once its caches are full",
            f"{shown} MiB in {self._size.watched_s:g} s each",
            held=growths[-1] < GROWTH_BYTES,
        )


async def _start(client: Client, count: int, until_s: float) -> None:
    """Start runs, some of them at once."""
    left = iter(range(count))

    async def start() -> None:
        for _ in left:
            await client.start(nap_until, until_s)

    await asyncio.gather(*(start() for _ in range(min(count, STARTED_AT_ONCE))))


async def _all_asleep(client: Client) -> None:
    """Wait until no run is on its way to its sleep."""

    async def is_quiet() -> bool:
        return not [run async for run in client.list_runs(status="pending")] and not [
            run async for run in client.list_runs(status="running")
        ]

    await eventually(is_quiet, "all asleep", within_s=LONG_WORK_S, every_s=0.2)
