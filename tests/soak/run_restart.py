"""The server is killed while runs work and sleep: they notice nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import msgspec

from tenure import Client
from tests.bounds import WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import steps_and_sleeps
from tests.wire.stage import Stage


class Size(msgspec.Struct, frozen=True):
    """How many runs, how they work, and for how long the server is away, how often."""

    runs: int
    rounds: int
    step_ms: int
    away_s: float
    kills: int
    scale: Scale


SIZES: Final = {
    False: Size(100, 20, 1_000, 5.0, 3, SCALES[False]),
    True: Size(10, 5, 300, 0.5, 2, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Kill the server again and again, in steps and in sleeps, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        # The address of the service stays, as it does behind a load balancer.
        proxy = await stage.proxy(server.grpc)
        worker = await SdkWorker.start(stage, proxy.address, slots=size.runs)
        async with Client(proxy.address) as client:
            runs = [
                await client.start(steps_and_sleeps, size.rounds, size.step_ms)
                for _ in range(size.runs)
            ]
            for number in range(1, size.kills + 1):
                await worker.tail.wait(number * size.runs, "begin")
                await server.kill()
                await asyncio.sleep(size.away_s)
                server = await stage.server()
                proxy.target = server.grpc
            results = [await each.result(timeout=WORK_S * 2) for each in runs]
        complaints = _judge(worker, {each.run_id for each in runs}, results, size)
        return [
            spotless(
                f"runs, server killed {size.kills} times, {dialect}",
                "each step of each run is done once",
                f"{size.runs} runs, {len(worker.tail.of('step'))} steps",
                complaints,
            )
        ]

    return await on_both_stores(size.scale, scene)


def _judge(worker: SdkWorker, run_ids: set[str], results: list[list[int]], size: Size) -> list[str]:
    numbers = list(range(1, size.rounds + 1))
    complaints = [f"a result is {each}" for each in results if each != numbers]
    done = Counter((line.task_id, int(line.text)) for line in worker.tail.of("step"))
    complaints += [
        f"step {number} of run {run_id} was done {done[run_id, number]} times"
        for run_id in run_ids
        for number in numbers
        if done[run_id, number] != 1
    ]
    return complaints
