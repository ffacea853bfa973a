"""Rolling restarts under load: nothing lost, nothing run twice, nothing charged."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Final

import msgspec

from tenure import Client, Handle
from tests.bounds import WORK_S
from tests.soak import sdk_activity
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.wire.journal import merge
from tests.wire.stage import Stage

MODES: Final = ("session", "session", "session", "poll")
BATCH: Final = 10


class Size(msgspec.Struct, frozen=True):
    """How many restarts, and how long the tasks are."""

    restarts: int
    nap_ms: int
    pause_s: float
    scale: Scale


SIZES: Final = {False: Size(100, 100, 0.05, SCALES[False]), True: Size(4, 50, 0.1, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Restart workers one after the other, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        workers = [await SdkWorker.start(stage, server.grpc, mode=mode) for mode in MODES]
        everyone = list(workers)
        handles: list[Handle[None]] = []
        codes: list[int] = []
        stops_s: list[float] = []
        async with Client(server.grpc) as client, asyncio.TaskGroup() as group:
            load = group.create_task(_load(client, handles, size))
            for number in range(size.restarts):
                place = number % len(workers)
                began_s = time.monotonic()
                workers[place].process.signal(signal.SIGTERM)
                codes.append(await workers[place].process.wait(WORK_S))
                stops_s.append(time.monotonic() - began_s)
                workers[place] = await SdkWorker.start(stage, server.grpc, mode=MODES[place])
                everyone.append(workers[place])
            load.cancel()
            await asyncio.wait([load])
            complaints = [f"exit code {code}" for code in codes if code != 0]
            complaints += await judge(handles, everyone)
        return [
            spotless(
                f"rolling, {dialect}: {size.restarts} restarts of {len(MODES)} workers",
                "every task succeeds with one start, nothing is charged, exit code 0",
                f"{len(handles)} tasks, longest stop {max(stops_s):.1f} s",
                complaints,
            )
        ]

    return await on_both_stores(size.scale, scene)


async def _load(client: Client, handles: list[Handle[None]], size: Size) -> None:
    kinds = (sdk_activity.nap, sdk_activity.nap_in_thread)
    while True:
        calls = [kinds[n % 2].call(size.nap_ms) for n in range(BATCH)]
        # What was asked for counts, also when the load is stopped meanwhile.
        handles += await asyncio.shield(asyncio.ensure_future(client.enqueue_many(calls)))
        await asyncio.sleep(size.pause_s)


async def judge(handles: list[Handle[None]], workers: list[SdkWorker]) -> list[str]:
    """Return the tasks that did not simply succeed."""
    complaints = []
    for handle in handles:
        await handle.result(timeout=WORK_S)
        task = await handle.describe()
        if task.failure_count or task.interruption_count:
            complaints.append(f"task {task.task_id} was charged")
    starts: dict[str, int] = {}
    for line in merge(each.tail for each in workers):
        if line.event == "start":
            starts[line.task_id] = starts.get(line.task_id, 0) + 1
    complaints += [
        f"task {each.task_id} was started {starts.get(each.task_id, 0)} times"
        for each in handles
        if starts.get(each.task_id, 0) != 1
    ]
    return complaints
