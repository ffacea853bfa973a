"""kill -9 at every point of every step of a run: each recorded step is done once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import msgspec

from tenure import Client, RunHandle
from tests.bounds import WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import POINTS, STEPS, ten_steps
from tests.wire.stage import Stage

# A step is done again only if nobody knew that it was done.
_AGAIN: Final[dict[str, set[int]]] = {"begin": {1}, "ran": {2}, "sent": {1, 2}, "recorded": {1}}


class Size(msgspec.Struct, frozen=True):
    """Where workers are killed, and how many of them at a time."""

    points: tuple[tuple[str, int], ...]
    together: int
    scale: Scale


SIZES: Final = {
    False: Size(
        tuple((point, number) for number in range(1, STEPS + 1) for point in POINTS),
        4,
        SCALES[False],
    ),
    True: Size((("begin", 1), ("ran", 4), ("sent", 7), ("recorded", 10)), 2, SCALES[True]),
}


class Doomed(msgspec.Struct, frozen=True):
    """A worker that dies at a point, and the run that it has then."""

    point: str
    number: int
    worker: SdkWorker
    handle: RunHandle[list[int]]


async def run(small: bool) -> list[Result]:
    """Kill a worker at each point, and let another one go on with all runs."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        async with Client(server.grpc) as client:
            doomed = await _kill_all(stage, server.grpc, client, size)
            queues = [_queue(point, number) for point, number in size.points]
            other = await SdkWorker.spawn(
                stage, server.grpc, slots=100, options=("--queue", ",".join(queues))
            )
            complaints = []
            for each in doomed:
                result = await each.handle.result(timeout=WORK_S)
                complaints += _judge(each, other, result)
        return [
            spotless(
                f"run, worker killed at every point, {dialect}",
                "each step is done once, unless its worker died before it could say so",
                f"{len(doomed)} kills",
                complaints,
            )
        ]

    return await on_both_stores(size.scale, scene)


def _queue(point: str, number: int) -> str:
    return f"{point}-{number}"


async def _kill_all(stage: Stage, target: str, client: Client, size: Size) -> list[Doomed]:
    doomed: list[Doomed] = []
    for first in range(0, len(size.points), size.together):
        some = size.points[first : first + size.together]
        doomed += await asyncio.gather(*(_kill(stage, target, client, *each) for each in some))
    return doomed


async def _kill(stage: Stage, target: str, client: Client, point: str, number: int) -> Doomed:
    queue = _queue(point, number)
    options = ("--queue", queue, "--die-at", f"{point}:{number}")
    worker = await SdkWorker.start(stage, target, options=options)
    handle = await client.start(ten_steps.with_options(queue=queue))
    await worker.process.wait(WORK_S)
    return Doomed(point, number, worker, handle)


def _judge(doomed: Doomed, other: SdkWorker, result: list[int]) -> list[str]:
    name = _queue(doomed.point, doomed.number)
    numbers = list(range(1, STEPS + 1))
    complaints = []
    if result != numbers:
        complaints.append(f"{name}: the result is {result}")
    done = Counter(
        int(line.text)
        for worker in (doomed.worker, other)
        for line in worker.tail.of("step")
        if line.task_id == doomed.handle.run_id
    )
    for number in numbers:
        allowed = _AGAIN[doomed.point] if number == doomed.number else {1}
        if done[number] not in allowed:
            complaints.append(f"{name}: step {number} was done {done[number]} times")
    return complaints
