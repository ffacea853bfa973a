"""Runs of workers that poll: their workers and the server are killed, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import msgspec

from tenure import Client, RunHandle, RunStatus, TaskCancelled
from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_child import everything
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import go_on
from tests.wire.stage import Stage

CODE: Final = "tests.soak.sdk_child"
SIGNAL: Final = 1_000_000


class Size(msgspec.Struct, frozen=True):
    """How many runs, how many items each maps over, and how often their worker is killed."""

    runs: int
    items: int
    kills: int
    away_s: float
    scale: Scale


SIZES: Final = {
    False: Size(100, 50, 5, 5.0, SCALES[False]),
    True: Size(10, 10, 2, 0.5, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Play it on both stores."""
    size = SIZES[small]
    return await on_both_stores(size.scale, lambda stage, name: _Polled(stage, size, name).play())


class _Polled:
    """Runs that are signalled or cancelled in the end, and the workers that they have."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._dialect = dialect
        self._holders: list[SdkWorker] = []

    async def play(self) -> list[Result]:
        size = self._size
        server = await self._stage.server()
        # The address of the service stays, as it does behind a load balancer.
        proxy = await self._stage.proxy(server.grpc)
        doer = await self._worker(proxy.address, "--no-workflows")
        await self._hold(proxy.address)
        async with Client(proxy.address) as client:
            runs = [await client.start(everything, each, size.items) for each in range(size.runs)]
            for number in range(1, size.kills + 1):
                goal = number * size.runs * size.items // (size.kills + 1)
                await doer.tail.wait(goal, "item")
                await self._holders[-1].process.kill()
                await self._hold(proxy.address)
            await server.kill()
            await asyncio.sleep(size.away_s)
            proxy.target = (await self._stage.server()).grpc
            await self._all_wait(client)
            await asyncio.gather(*map(self._close, runs))
            complaints = await self._judge(runs, doer)
        return [
            spotless(
                f"runs in poll mode, workers and server killed, {self._dialect}",
                "right results, no item and no child is done twice",
                f"{size.runs} runs, {len(doer.tail.of('item')):,} items",
                complaints,
            )
        ]

    async def _worker(self, target: str, option: str) -> SdkWorker:
        options = ("--workflows", CODE, "--activities", CODE, option)
        slots = self._size.runs
        return await SdkWorker.start(self._stage, target, mode="poll", slots=slots, options=options)

    async def _hold(self, target: str) -> None:
        self._holders.append(await self._worker(target, "--no-activities"))

    async def _all_wait(self, client: Client) -> None:
        """Wait until each run waits for its signal."""

        async def is_there() -> bool:
            found = client.list_runs(status=RunStatus.WAITING, type="everything")
            waits = [info.waits async for info in found]
            return sum(any(each.kind == "signal" for each in some) for some in waits) == (
                self._size.runs
            )

        await eventually(is_there, "all runs wait for a signal", within_s=LONG_WORK_S)

    async def _close(self, handle: RunHandle[int]) -> None:
        if self._is_cancelled(handle):
            await handle.cancel()
        else:
            await handle.signal(go_on, SIGNAL)

    def _is_cancelled(self, handle: RunHandle[int]) -> bool:
        """Every other run is cancelled."""
        return int(handle.run_id[-1], 16) % 2 == 0

    async def _judge(self, runs: list[RunHandle[int]], doer: SdkWorker) -> list[str]:
        size = self._size
        complaints = []
        for number, handle in enumerate(runs):
            expected: object = size.items * (size.items - 1) // 2 + number + SIGNAL
            if self._is_cancelled(handle):
                expected = "cancelled"
            found = await self._outcome(handle)
            if found != expected:
                complaints.append(f"run {handle.run_id} ended with {found}, not {expected}")
        done = Counter(line.task_id for line in doer.tail.of("item"))
        complaints += [f"{task_id} was done {n} times" for task_id, n in done.items() if n != 1]
        cleaned = Counter(line.task_id for each in self._holders for line in each.tail.of("undone"))
        for handle in runs:
            undone = 1 if self._is_cancelled(handle) else 0
            if cleaned[handle.run_id] != undone:
                complaints.append(f"{handle.run_id} was undone {cleaned[handle.run_id]} times")
        wanted = size.runs * (size.items + 1) + sum(cleaned.values())
        if len(done) != wanted:
            complaints.append(f"{len(done)} items and children were done, not {wanted}")
        return complaints

    async def _outcome(self, handle: RunHandle[int]) -> object:
        try:
            return await handle.result(timeout=LONG_WORK_S)
        except TaskCancelled:
            return "cancelled"
