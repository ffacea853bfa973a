"""Code that holds the interpreter's lock or blocks the event loop costs no lease."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tenure import Client, Handle
from tenure.v1.worker_pb2 import WORKER_HEALTH_BLOCKED, Worker
from tests.bounds import WORK_S
from tests.soak import sdk_activity
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.wire.client import Client as WireClient
from tests.wire.stage import Stage

LOOK_S: Final = 0.2


class Size(msgspec.Struct, frozen=True):
    """How long the lock is held at a time and how often, and how long the loop is blocked."""

    held_s: float
    times: int
    blocked_s: float
    scale: Scale


# Who holds the lock takes turns of half a second from the thread that beats, so the shortest lease
# leaves nothing for a busy machine. The loop is blocked for two leases.
_LEASE_S: Final = 5.0
_SHORT: Final = msgspec.structs.replace(
    SCALES[True],
    settings={**SCALES[True].settings, "session_lease_ms": int(1_000 * _LEASE_S)},
    session_lease_s=_LEASE_S,
)
SIZES: Final = {False: Size(2.0, 10, 20.0, SCALES[False]), True: Size(0.5, 4, 2 * _LEASE_S, _SHORT)}


async def run(small: bool) -> list[Result]:
    """Block one worker in both ways, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        wire = await stage.client(server.grpc)
        worker = await SdkWorker.start(stage, server.grpc)
        name = f"blocked, {dialect}"
        async with Client(server.grpc) as client:
            held = await client.enqueue(sdk_activity.hold_gil, size.held_s, size.times)
            held_seen = await _watch(wire, held)
            slept = await client.enqueue(sdk_activity.block_loop, size.blocked_s)
            slept_seen = await _watch(wire, slept)
            complaints = await _judge(held, held_seen) + await _judge(slept, slept_seen)
        longest_s = max(float(line.text) for line in worker.tail.of("held"))
        is_shown = any(each.health == WORKER_HEALTH_BLOCKED for each in slept_seen)
        is_logged = "blocked" in worker.log
        return [
            spotless(
                f"{name}: lock held for {size.held_s:g} s at a time, loop for {size.blocked_s:g} s",
                "no lease lost, attempt 1",
                f"longest hold {longest_s:.1f} s",
                complaints,
            ),
            Result(
                f"{name}: the blocked loop is seen",
                "in the worker's health and in its log",
                f"health {'yes' if is_shown else 'no'}, log {'yes' if is_logged else 'no'}",
                held=is_shown and is_logged,
            ),
        ]

    return await on_both_stores(size.scale, scene)


async def _watch(wire: WireClient, handle: Handle[object]) -> list[Worker]:
    """Look at the workers until a task has ended."""
    seen: list[Worker] = []
    waiting = asyncio.ensure_future(handle.result(timeout=2 * WORK_S))
    while not waiting.done():
        seen += await wire.workers()
        await asyncio.wait([waiting], timeout=LOOK_S)
    await waiting
    return seen


async def _judge(handle: Handle[object], seen: list[Worker]) -> list[str]:
    complaints = []
    task = await handle.describe()
    if task.attempt != 1:
        complaints.append(f"task {task.task_id} needed {task.attempt} attempts")
    if len({each.worker_id for each in seen}) != 1:
        complaints.append("the worker had to register again")
    return complaints
