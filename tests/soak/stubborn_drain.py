"""A worker is told to stop and its activities ignore that: it leaves, and others go on."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

from tenure import Client
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak import sdk_activity
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.wire.stage import Stage

DEADLINE_S: Final = 1.0
# Activities have 5 s to clean up after the deadline, and the goodbye has its time.
PROMISED_S: Final = DEADLINE_S + 13.0
BLOCKED_S: Final = 600.0
# A short lease, so that what is let go with it comes back soon.
_SCALE: Final = SCALES[True]


async def run(small: bool) -> list[Result]:
    """Drain one such worker on each store."""
    scale = Scale(_SCALE.settings, _SCALE.session_lease_s, _SCALE.poll_lease_s, _SCALE.slack, small)

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        options = ("--drain-deadline", f"{DEADLINE_S:g}s")
        worker = await SdkWorker.start(stage, server.grpc, options=options)
        async with Client(server.grpc) as client:
            handles = [await client.enqueue(each, BLOCKED_S) for each in sdk_activity.STUBBORN]
            ids = {each.task_id for each in handles}
            await eventually(lambda: _begun(worker) == ids, "all activities", within_s=WORK_S)
            await eventually(
                lambda: bool(worker.tail.of("below")), "a process below", within_s=WORK_S
            )
            other = await SdkWorker.start(stage, server.grpc)
            began_s = time.monotonic()
            worker.process.signal(signal.SIGTERM)
            code = await worker.process.wait(WORK_S)
            took_s = time.monotonic() - began_s
            for each in handles:
                await each.result(timeout=WORK_S)
        name = f"stubborn activities, {dialect}"
        return [
            bound(f"{name}: the worker has left", PROMISED_S, took_s, scale),
            spotless(
                f"{name}: all of them end elsewhere",
                "once",
                f"exit code {code}",
                _complaints(worker, other),
            ),
        ]

    return await on_both_stores(scale, scene)


def _begun(worker: SdkWorker) -> set[str]:
    return {line.task_id for line in worker.tail.of("start", "step")}


def _complaints(worker: SdkWorker, other: SdkWorker) -> list[str]:
    complaints = [
        f"process {line.text} still runs"
        for line in worker.tail.of("start", "below")
        if line.text and _is_alive(int(line.text))
    ]
    last = {line.task_id: line.mono_s for line in worker.tail.of("step", "swallowed")}
    first = {line.task_id: line.mono_s for line in reversed(other.tail.of("step"))}
    for task_id, at_s in first.items():
        if at_s <= last[task_id]:
            complaints.append(
                f"exclusive task {task_id} ran {last[task_id] - at_s:.2f} s beside another"
            )
    complaints += [] if "do not stop" in worker.log else ["the log does not tell of it"]
    if not first:
        complaints.append("the exclusive task did not run elsewhere")
    return complaints


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True
