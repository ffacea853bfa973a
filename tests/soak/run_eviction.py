"""Runs that are put aside fifty times clean up once, and nobody hears of it in the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from tenure import Client, RunHandle, RunStatus
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import go_on, plain_wait_often, wait_often
from tests.wire.stage import Stage

TIMES: Final = 50
_NOISE: Final = ("Traceback", "never retrieved", "destroyed", "never awaited", "put aside")


async def run(small: bool) -> list[Result]:
    """Wake runs again and again that their worker does not keep in memory, on both stores."""

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        worker = await SdkWorker.start(stage, server.grpc, options=("--warm-runs", "0"))
        async with Client(server.grpc) as client:
            runs = [await client.start(code, TIMES) for code in (wait_often, plain_wait_often)]
            totals = await asyncio.gather(*(_wake_often(each) for each in runs))
        cleaned_up = Counter(line.task_id for line in worker.tail.of("step"))
        complaints = [f"the log has {each!r}" for each in _NOISE if each in worker.log]
        for handle, total in zip(runs, totals, strict=True):
            if total != sum(range(TIMES)):
                complaints.append(f"the result of {handle.run_id} is {total}")
            if cleaned_up[handle.run_id] != 1:
                times = cleaned_up[handle.run_id]
                complaints.append(f"{handle.run_id} has cleaned up {times} times")
        return [
            spotless(
                f"runs, put aside {TIMES} times, {dialect}",
                "the clean-up of each runs once, and the log is silent",
                f"{cleaned_up.total()} clean-ups",
                complaints,
            )
        ]

    return await on_both_stores(SCALES[small], scene)


async def _wake_often(handle: RunHandle[int]) -> int:
    """Wake a run with a signal each time that it waits, until it has ended."""

    async def waits() -> bool:
        return await handle.status() is RunStatus.WAITING

    for number in range(TIMES):
        await eventually(waits, "the run waits", within_s=WORK_S)
        await handle.signal(go_on, number)
    return await handle.result(timeout=WORK_S)
