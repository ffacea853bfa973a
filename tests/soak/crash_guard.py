"""Tasks that kill their workers, and workers that die by chance: only the guilty are found."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from tenure import Client, Handle, TaskFailed, TaskPoisoned
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak import sdk_activity
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.wire.stage import Stage

POLL_S: Final = 0.2


class Size(msgspec.Struct, frozen=True):
    """How many tasks of which length, and how long the storm lasts.

    Suspects back off, so the verdict takes minutes. Without a time for it, a task that kills its
    worker only has to become the sole suspect of one.
    """

    suspects: int
    suspect_ms: int
    workers: int
    slots: int
    neighbours: int
    killed_each_s: float
    storm_s: float
    found_within_s: float
    scale: Scale


SIZES: Final = {
    False: Size(20, 4_000, 4, 100, 199, 10.0, 600.0, 900.0, SCALES[False]),
    True: Size(6, 1_000, 2, 2, 3, 4.0, 10.0, 0.0, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Suspects, calm and storm, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        async with Client(server.grpc) as client:
            play = _Play(stage, client, server.grpc, size, f"crash guard, {dialect}")
            return [*await play.suspects(), *await play.calm(), *await play.storm()]

    return await on_both_stores(size.scale, scene)


class _Fleet:
    """Workers that are started again whenever they end."""

    def __init__(self, stage: Stage, target: str, slots: int) -> None:
        self._stage = stage
        self._target = target
        self._slots = slots
        self.live: list[SdkWorker] = []
        self.deaths = 0

    async def keep_one(self) -> None:
        while True:
            worker = await SdkWorker.spawn(self._stage, self._target, slots=self._slots)
            self.live.append(worker)
            try:
                await worker.process.wait(10 * WORK_S)
                self.deaths += 1
            finally:
                self.live.remove(worker)

    async def kill_one(self, each_s: float, chance: random.Random) -> None:
        """Kill one of the workers about so often."""
        while True:
            await asyncio.sleep(chance.uniform(0.5, 1.5) * each_s)
            if self.live:
                await chance.choice(self.live).process.kill()


class _Play:
    """The three scenes on one server."""

    def __init__(self, stage: Stage, client: Client, target: str, size: Size, name: str) -> None:
        self._stage = stage
        self._client = client
        self._target = target
        self._size = size
        self._name = name

    async def suspects(self) -> list[Result]:
        """Kill a worker with all that it holds, twice; then let one run it."""
        size = self._size
        calls = [sdk_activity.nap.call(size.suspect_ms) for _ in range(size.suspects)]
        handles = await self._client.enqueue_many(calls)
        for _ in range(2):
            worker = await self._worker()
            await worker.process.kill()
        worker = await self._worker(started=1)
        complaints, _ = await self._outcomes(handles)
        starts, ends = worker.tail.of("start"), worker.tail.of("done")
        took_s = max(each.mono_s for each in ends) - min(each.mono_s for each in starts)
        await worker.process.stop()
        name = f"{self._name}: {size.suspects} suspects with as many slots"
        promised_s = 3 * size.suspect_ms / 1_000
        return [
            bound(f"{name}, in 3 x their own time", promised_s, took_s, size.scale),
            spotless(name, "all succeed", f"{len(handles)} tasks", complaints),
        ]

    async def _worker(self, started: int = 0) -> SdkWorker:
        slots = self._size.suspects
        worker = await SdkWorker.start(self._stage, self._target, slots=slots)
        await eventually(
            lambda: len(worker.tail.of("start")) >= (started or slots),
            "the starts",
            within_s=WORK_S,
        )
        return worker

    async def calm(self) -> list[Result]:
        """Let one task that kills its worker stand among others."""
        size = self._size
        began_s = time.monotonic()
        async with self._fleet() as fleet:
            killer = await self._client.enqueue(sdk_activity.kill_worker, 200)
            calls = [sdk_activity.nap.call(2_000) for _ in range(size.neighbours)]
            handles = await self._client.enqueue_many(calls)
            verdict = await self._verdict(killer)
            took_s = time.monotonic() - began_s
            complaints, _ = await self._outcomes(handles)
        said = f"{verdict}; {took_s:.0f} s, {fleet.deaths} workers died"
        return [self._found(f"one of {size.neighbours + 1} kills its worker", said, complaints)]

    async def storm(self) -> list[Result]:
        """Kill every worker again and again, with one task among others that does so too."""
        size = self._size
        chance = random.Random(1)
        handles: list[Handle[Any]] = []
        began_s = time.monotonic()
        killer = await self._client.enqueue(sdk_activity.kill_worker, 200)
        async with self._fleet() as fleet:
            killing = asyncio.create_task(fleet.kill_one(size.killed_each_s / size.workers, chance))
            while time.monotonic() - began_s < size.storm_s:
                calls = [sdk_activity.nap.call(chance.randrange(4_000)) for _ in range(size.slots)]
                handles += await self._client.enqueue_many(calls)
                await asyncio.sleep(4.0)
            killing.cancel()
            await asyncio.wait([killing])
            verdict = await self._verdict(killer)
            took_s = time.monotonic() - began_s
            complaints, counts = await self._outcomes(handles)
        if 0 < size.found_within_s < took_s:
            complaints.append(f"the verdict took {took_s:.0f} s")
        said = f"{verdict}; {took_s:.0f} s, {fleet.deaths} workers died, {dict(counts)}"
        name = f"all workers die each {size.killed_each_s:g} s for {size.storm_s:g} s"
        return [self._found(name, said, complaints)]

    def _found(self, name: str, said: str, complaints: list[str]) -> Result:
        within_s = self._size.found_within_s
        verdict = (
            f"failed after 5 losses alone, within {within_s:g} s" if within_s else "alone soon"
        )
        promised = f"{verdict}; all others succeed"
        return spotless(f"{self._name}: {name}", promised, said, complaints)

    @contextlib.asynccontextmanager
    async def _fleet(self) -> AsyncIterator[_Fleet]:
        fleet = _Fleet(self._stage, self._target, self._size.slots)
        keeping = [asyncio.create_task(fleet.keep_one()) for _ in range(self._size.workers)]
        try:
            yield fleet
        finally:
            left = list(fleet.live)
            for each in keeping:
                each.cancel()
            await asyncio.wait(keeping)
            for worker in left:
                await worker.process.kill()

    async def _verdict(self, killer: Handle[Any]) -> str:
        """Wait until the task that kills workers is found; small, until a loss of it counts."""
        if self._size.found_within_s:
            try:
                await killer.result(timeout=15 * WORK_S)
            except TaskPoisoned as error:
                return str(error)
            raise AssertionError("A task that kills its worker has succeeded.")
        while True:
            for reason in (await killer.explain()).reasons:
                if reason.code == "crash_guard" and reason.evidence["groupMax"] == "1":
                    await killer.cancel()
                    return f"{reason.evidence['lossCount']} losses, then alone"
            await asyncio.sleep(POLL_S)

    async def _outcomes(self, handles: list[Handle[Any]]) -> tuple[list[str], Counter[str]]:
        complaints, counts = list[str](), Counter[str]()
        for handle in handles:
            try:
                await handle.result(timeout=5 * WORK_S)
                counts["succeeded"] += 1
            except TaskFailed as error:
                complaints.append(f"task {handle.task_id}: {error}")
                counts["failed"] += 1
        return complaints, counts
