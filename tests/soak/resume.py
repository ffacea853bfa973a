"""kill -9 in the middle of a resumable activity: another worker goes on from the last heartbeat."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from tenure import Client
from tests.bounds import WORK_S
from tests.soak import sdk_activity
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.wire.stage import Stage

PROMISED_S: Final = 5.0


class Size(msgspec.Struct, frozen=True):
    """How often, how many steps, and after how many the worker is killed."""

    kills: int
    steps: int
    killed_after: int
    scale: Scale


SIZES: Final = {False: Size(5, 600, 250, SCALES[False]), True: Size(1, 150, 25, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Kill the one that works, again and again, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        took, complaints = [], list[str]()
        spare = await SdkWorker.start(stage, server.grpc, slots=1)
        async with Client(server.grpc) as client:
            for _ in range(size.kills):
                busy, handle = spare, await client.enqueue(sdk_activity.climb, size.steps)
                await busy.tail.wait(size.killed_after, "step")
                spare = await SdkWorker.start(stage, server.grpc, slots=1)
                await busy.process.kill()
                killed_at_s = time.monotonic()
                await spare.tail.wait(1, "resumed", "start")
                took.append(spare.tail.of("resumed", "start")[0].mono_s - killed_at_s)
                result = await handle.result(timeout=WORK_S)
                complaints += _judge(busy, spare, size, result)
        name = f"resume, {dialect}"
        return [
            bound(f"{name}: another worker goes on", PROMISED_S, max(took), size.scale),
            spotless(
                f"{name}: from the last heartbeat, to the end",
                "no step is missing, none before the checkpoint is repeated",
                f"{size.kills} kills",
                complaints,
            ),
        ]

    return await on_both_stores(size.scale, scene)


def _judge(killed: SdkWorker, other: SdkWorker, size: Size, result: int) -> list[str]:
    complaints = []
    if result != size.steps:
        complaints.append(f"the result is {result}, not {size.steps}")
    resumed = other.tail.of("resumed")
    if not resumed:
        return [*complaints, "the other worker started from nothing"]
    first = int(resumed[0].text)
    before = [int(line.text) for line in killed.tail.of("step")]
    after = [int(line.text) for line in other.tail.of("step")]
    if not 0 < first <= before[-1] + 1:
        complaints.append(f"resumed at step {first}, the last one taken was {before[-1]}")
    if after[: size.steps - first] != list(range(first, size.steps)):
        complaints.append(f"after {first} came {after[:3]} to {after[-1:]}")
    return complaints
