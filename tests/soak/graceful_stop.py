"""SIGTERM to a server with open streams and load: it ends in time, and what it accepted is kept."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from tests.bounds import LONG_WORK_S, WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores, spotless
from tests.wire import checker
from tests.wire.client import make_task
from tests.wire.journal import merge
from tests.wire.load import Load
from tests.wire.stage import Stage

STOP_SECONDS: Final = 10.0
MODES: Final = ("session", "session", "poll")


class Size(msgspec.Struct, frozen=True):
    """How often the server is stopped, after how long, and with how many clients."""

    stops: int
    after_s: float
    clients: int
    scale: Scale


SIZES: Final = {False: Size(5, 5.0, 16, SCALES[False]), True: Size(1, 1.0, 4, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Stop the server under load, start another, and look whether everything is there."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        proxy = await stage.proxy(server.grpc)
        clients = [await stage.client(proxy.address) for _ in range(size.clients)]
        loads = [Load(each, sleep_ms=20, pause_s=0.02) for each in clients]
        workers = await asyncio.gather(
            *(stage.worker(proxy.address, mode=mode, slots=20) for mode in MODES)
        )
        # A task that nobody can run keeps a stream of results open.
        watched = await clients[0].enqueue([make_task(queue="nobody")])
        codes, longest_s = [], 0.0
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(clients[0].wait_all(watched, WORK_S * 10))
            producing = [group.create_task(load.run()) for load in loads]
            for _ in range(size.stops):
                await asyncio.sleep(size.after_s)
                stopped_at_s = time.monotonic()
                codes.append(await server.process.stop(STOP_SECONDS * 3))
                longest_s = max(longest_s, time.monotonic() - stopped_at_s)
                server = await stage.server()
                proxy.target = server.grpc
            await asyncio.sleep(size.after_s)
            for load in loads:
                load.is_stopping = True
            await asyncio.gather(*producing)
            watch.cancel()
        ids = [each for load in loads for each in load.ids]
        results = await clients[0].wait_all(ids, LONG_WORK_S)
        lines = merge([each.tail for each in workers])
        complaints = [f"task {each} is not there" for each in ids if results[each].refusal.code]
        complaints += checker.check_outputs(lines, results) + checker.check_accepted(lines)
        complaints += checker.check_calm(lines)
        complaints += [f"exit code {code}" for code in codes if code]
        name = f"graceful stop, {dialect}"
        return [
            bound(
                f"{name}: SIGTERM with open streams and load", STOP_SECONDS, longest_s, size.scale
            ),
            spotless(
                f"{name}: no accepted request lost",
                "every acknowledged enqueue and end is there, exit code 0",
                f"{len(ids):,} tasks, {size.stops} stops",
                complaints,
            ),
        ]

    return await on_both_stores(size.scale, scene)
