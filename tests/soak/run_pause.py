"""A worker stands still in a step for longer than its lease: the other one owns the run then."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure import Client
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import long_step, ten_steps
from tests.wire.stage import Stage


class Size(msgspec.Struct, frozen=True):
    """How long the step takes during which the worker stands still."""

    step_ms: int
    scale: Scale


SIZES: Final = {False: Size(3_000, SCALES[False]), True: Size(500, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Pause a worker, let another one take over, and wake it, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        first = await SdkWorker.start(stage, server.grpc)
        async with Client(server.grpc) as client:
            handle = await client.start(long_step, size.step_ms)
            await first.tail.wait(1, "begin")
            first.process.pause()
            other = await SdkWorker.start(stage, server.grpc)
            result = await handle.result(timeout=WORK_S)
            first.process.go_on()
            # It registers again, and is of use again.
            await eventually(
                lambda: first.log.count("Registered as") == 2, "the first again", within_s=WORK_S
            )
            await other.process.stop()
            again = await client.start(ten_steps)
            await again.result(timeout=WORK_S)
            attempt = (await handle.describe()).attempt
        complaints = _judge(first, other, handle.run_id, result)
        if attempt != 2:
            complaints.append(f"the run ended in attempt {attempt}")
        return [
            spotless(
                f"run, worker paused for longer than its lease, {dialect}",
                "the other one finishes it; the first one does nothing more of it",
                f"ended in attempt {attempt}",
                complaints,
            )
        ]

    return await on_both_stores(size.scale, scene)


def _judge(first: SdkWorker, other: SdkWorker, run_id: str, result: list[int]) -> list[str]:
    complaints = [] if result == [1, 2, 3] else [f"the result is {result}"]
    steps = {
        name: [line.text for line in worker.tail.of("step") if line.task_id == run_id]
        for name, worker in (("first", first), ("other", other))
    }
    if steps["other"] != ["2", "3"]:
        complaints.append(f"the other one did the steps {steps['other']}")
    # The step that it was in may come to its end; nobody hears of it.
    if steps["first"] not in (["1"], ["1", "2"]):
        complaints.append(f"the first one did the steps {steps['first']}")
    return complaints
