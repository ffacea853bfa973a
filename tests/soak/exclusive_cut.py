"""The connection of a worker that runs exclusive work is cut for good: nobody runs beside it."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tenure import Client
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak import sdk_activity
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores
from tests.soak.sdk_scene import SdkWorker
from tests.wire.proxy import Proxy
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

# Of a lease below 4 s the worker keeps less than a second for itself.
_SHORT: Final = {**SCALES[True].settings, "session_lease_ms": 5_000, "poll_lease_ms": 5_000}
# The worker stops a second before the lease is over, and the server gives the task away after it.
GAP_S: Final = 1.0
RUN_S: Final = 90.0


class Size(msgspec.Struct, frozen=True):
    """How long the leases are, and how long after the first stop the other has to wait."""

    scale: Scale
    gap_s: float


SIZES: Final = {
    False: Size(SCALES[False], GAP_S),
    # Other tests may keep a worker from stopping for a while; side by side none may ever run.
    True: Size(Scale(_SHORT, 5.0, 5.0, SCALES[True].slack, is_side_by_side=True), 0.0),
}
ACTIVITIES: Final = (sdk_activity.walk, sdk_activity.walk_in_process)


async def run(small: bool) -> list[Result]:
    """Cut workers of each mode, with each kind of work, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        async with Client(server.grpc) as client:
            cuts = [_Cut(stage, server, client, mode) for mode in ("session", "poll")]
            return [
                each
                for some in await asyncio.gather(*(cut.play(dialect, size) for cut in cuts))
                for each in some
            ]

    return await on_both_stores(size.scale, scene)


class _Cut:
    """One worker of one mode that is cut, and one that takes its work over."""

    def __init__(self, stage: Stage, server: ServerProcess, client: Client, mode: str) -> None:
        self._stage = stage
        self._server = server
        self._client = client
        self._mode = mode

    async def play(self, dialect: str, size: Size) -> list[Result]:
        proxy = await self._stage.proxy(self._server.grpc)
        first = await self._worker(proxy.address)
        for each in ACTIVITIES:
            await self._client.enqueue(each.with_options(queue=self._mode), RUN_S)
        await eventually(lambda: len(_tasks(first)) == len(ACTIVITIES), "the work", within_s=WORK_S)
        other = await self._worker(self._server.grpc)
        cut_at_s = _cut(proxy)
        await eventually(
            lambda: len(_tasks(other)) == len(ACTIVITIES), "the other", within_s=WORK_S
        )
        # What the first one still does has to show.
        await asyncio.sleep(1)
        name = f"exclusive work, worker cut off, {self._mode}, {dialect}"
        begun = {line.task_id: line.mono_s for line in other.tail.of("step")}
        ended = {line.task_id: line.mono_s for line in first.tail.of("step")}
        gap_s = min(begun[task_id] - ended[task_id] for task_id in begun)
        took_s = max(begun.values()) - cut_at_s
        return [
            Result(
                f"{name}: time between the old and the new one",
                f"at least {size.gap_s:g} s",
                f"{gap_s:.2f} s",
                held=gap_s >= size.gap_s,
            ),
            bound(
                f"{name}: another worker runs it",
                size.scale.lease_s(self._mode) + 1,
                took_s,
                size.scale,
            ),
        ]

    async def _worker(self, target: str) -> SdkWorker:
        options = ("--queue", self._mode)
        return await SdkWorker.start(self._stage, target, mode=self._mode, options=options)


def _tasks(worker: SdkWorker) -> set[str]:
    return {line.task_id for line in worker.tail.of("step")}


def _cut(proxy: Proxy) -> float:
    """Cut everything, for good; return when."""
    proxy.target = "127.0.0.1:1"
    proxy.cut()
    return asyncio.get_running_loop().time()
