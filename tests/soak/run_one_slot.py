"""A parent and its child on a worker with one slot: nobody waits for the other's place."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from tenure import Client
from tests.bounds import WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores
from tests.soak.sdk_child import one_parent
from tests.soak.sdk_scene import SdkWorker
from tests.wire.stage import Stage

PROMISED_S: Final = 2.0
CODE: Final = "tests.soak.sdk_child"


class Size(msgspec.Struct, frozen=True):
    """How often, and with how many at once in the end."""

    rounds: int
    together: int
    scale: Scale


SIZES: Final = {False: Size(20, 10, SCALES[False]), True: Size(3, 2, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Run a parent whose child waits for an activity, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        options = ("--workflows", CODE, "--activities", CODE)
        await SdkWorker.start(stage, server.grpc, slots=1, options=options)
        async with Client(server.grpc) as client:
            took_s = [await _one(client, number) for number in range(size.rounds)]
            began = time.monotonic()
            await asyncio.gather(*(_one(client, number) for number in range(size.together)))
            together_s = time.monotonic() - began
        name = f"parent, child and activity on one slot, {dialect}"
        return [
            bound(f"{name}: the longest of {size.rounds}", PROMISED_S, max(took_s), size.scale),
            bound(
                f"{name}: {size.together} at once, for each",
                PROMISED_S,
                together_s / size.together,
                size.scale,
            ),
        ]

    return await on_both_stores(size.scale, scene)


async def _one(client: Client, number: int) -> float:
    began = time.monotonic()
    handle = await client.start(one_parent, number)
    assert await handle.result(timeout=WORK_S) == number
    return time.monotonic() - began
