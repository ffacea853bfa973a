"""A run that is put aside fifty times cleans up once, and nobody hears of it in the log."""

from __future__ import annotations

from typing import Final

from tenure import Client, RunStatus
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import go_on, wait_often
from tests.wire.stage import Stage

TIMES: Final = 50
_NOISE: Final = ("Traceback", "never retrieved", "destroyed", "never awaited", "put aside")


async def run(small: bool) -> list[Result]:
    """Wake a run again and again that its worker does not keep in memory, on both stores."""

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        worker = await SdkWorker.start(stage, server.grpc, options=("--warm-runs", "0"))
        async with Client(server.grpc) as client:
            handle = await client.start(wait_often, TIMES)

            async def waits() -> bool:
                return await handle.status() is RunStatus.WAITING

            for number in range(TIMES):
                await eventually(waits, "the run waits", within_s=WORK_S)
                await handle.signal(go_on, number)
            total = await handle.result(timeout=WORK_S)
        steps = len(worker.tail.of("step"))
        complaints = [f"the log has {each!r}" for each in _NOISE if each in worker.log]
        if total != sum(range(TIMES)):
            complaints.append(f"the result is {total}")
        if steps != 1:
            complaints.append(f"it has cleaned up {steps} times")
        return [
            spotless(
                f"run, put aside {TIMES} times, {dialect}",
                "the clean-up runs once, and the log is silent",
                f"{steps} clean-up",
                complaints,
            )
        ]

    return await on_both_stores(SCALES[small], scene)
