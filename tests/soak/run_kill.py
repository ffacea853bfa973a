"""kill -9 at every point of every step of a run: each recorded step is done once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import msgspec

from tenure import Client, RunHandle, Workflow
from tests.bounds import WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import POINTS, STEPS, plain_ten_steps, ten_steps
from tests.wire.stage import Stage

CODE: Final = (ten_steps, plain_ten_steps)
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


class Point(msgspec.Struct, frozen=True):
    """Where a worker dies: in a run of this code, at a point of the step with this number."""

    code: Workflow[[], list[int]]
    point: str
    number: int

    @property
    def queue(self) -> str:
        """The queue of the worker, which nobody else serves at first."""
        return f"{self.code.name}-{self.point}-{self.number}"


class Doomed(msgspec.Struct, frozen=True):
    """A worker that dies at a point, and the run that it has then."""

    at: Point
    worker: SdkWorker
    handle: RunHandle[list[int]]


async def run(small: bool) -> list[Result]:
    """Kill a worker at each point, and let another one go on with all runs."""
    size = SIZES[small]
    # A worker serves up to 50 queues: each kind of body has one that goes on with its runs.
    kinds = [[Point(code, *each) for each in size.points] for code in CODE]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        async with Client(server.grpc) as client:
            complaints = []
            for points in kinds:
                doomed = await _kill_all(stage, server.grpc, client, points, size.together)
                complaints += await _go_on(stage, server.grpc, doomed)
        return [
            spotless(
                f"run, worker killed at every point, {dialect}",
                "each step is done once, unless its worker died before it could say so",
                f"{sum(map(len, kinds))} kills",
                complaints,
            )
        ]

    return await on_both_stores(size.scale, scene)


async def _kill_all(
    stage: Stage, target: str, client: Client, points: list[Point], together: int
) -> list[Doomed]:
    doomed: list[Doomed] = []
    for first in range(0, len(points), together):
        some = points[first : first + together]
        doomed += await asyncio.gather(*(_kill(stage, target, client, each) for each in some))
    return doomed


async def _go_on(stage: Stage, target: str, doomed: list[Doomed]) -> list[str]:
    """Let another worker go on with all runs, and return what was wrong with them."""
    queues = ",".join(each.at.queue for each in doomed)
    other = await SdkWorker.spawn(stage, target, slots=100, options=("--queue", queues))
    complaints = []
    for each in doomed:
        result = await each.handle.result(timeout=WORK_S)
        complaints += _judge(each, other, result)
    return complaints


async def _kill(stage: Stage, target: str, client: Client, at: Point) -> Doomed:
    options = ("--queue", at.queue, "--die-at", f"{at.point}:{at.number}")
    worker = await SdkWorker.start(stage, target, options=options)
    handle = await client.start(at.code.with_options(queue=at.queue))
    await worker.process.wait(WORK_S)
    return Doomed(at, worker, handle)


def _judge(doomed: Doomed, other: SdkWorker, result: list[int]) -> list[str]:
    at = doomed.at
    numbers = list(range(1, STEPS + 1))
    complaints = []
    if result != numbers:
        complaints.append(f"{at.queue}: the result is {result}")
    done = Counter(
        int(line.text)
        for worker in (doomed.worker, other)
        for line in worker.tail.of("step")
        if line.task_id == doomed.handle.run_id
    )
    for number in numbers:
        allowed = _AGAIN[at.point] if number == at.number else {1}
        if done[number] not in allowed:
            complaints.append(f"{at.queue}: step {number} was done {done[number]} times")
    return complaints
