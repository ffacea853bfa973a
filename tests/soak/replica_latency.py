"""A task enqueued on one server starts on a worker of another, soon."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Final

import msgspec

from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale
from tests.wire.client import make_task
from tests.wire.stage import open_stage

PROMISED_MS: Final = 100.0
# Behind a pooler servers cannot tell each other: a second more, at most.
PROMISED_POOLED_MS: Final = PROMISED_MS + 1_000.0


class Size(msgspec.Struct, frozen=True):
    """How many tasks, one after the other."""

    tasks: int
    pause_s: float
    scale: Scale


SIZES: Final = {False: Size(300, 0.2, SCALES[False]), True: Size(15, 0.05, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Enqueue on one server; all workers are at the other, with and without hints."""
    size = SIZES[small]
    return [await _measure(size), await _measure(size, "--pooled")]


async def _measure(size: Size, *options: str) -> Result:
    promised_ms = PROMISED_POOLED_MS if options else PROMISED_MS
    async with open_stage("postgres") as stage:
        here, there = await stage.server(*options), await stage.server(*options)
        client = await stage.client(here.grpc)
        worker = await stage.worker(there.grpc)
        await client.enqueue([make_task()])
        await worker.tail.wait(1, "accepted")
        took_ms = []
        for _ in range(size.tasks):
            count = len(worker.tail.of("start")) + 1
            sent_at_s = time.monotonic()
            await client.enqueue([make_task()])
            await worker.tail.wait(count, "start")
            took_ms.append(1_000 * (worker.tail.of("start")[-1].mono_s - sent_at_s))
            await asyncio.sleep(size.pause_s)
    took_ms.sort()
    p99_ms = took_ms[int(len(took_ms) * 0.99)]
    # Few samples on a machine that does other things have no tail worth judging.
    judged_ms = statistics.median(took_ms) if size.scale.is_side_by_side else p99_ms
    name = "replica latency: from the call on one server to the start on a worker of another"
    return Result(
        " ".join([name, *options]),
        f"within {promised_ms:.0f} ms",
        f"median {statistics.median(took_ms):.1f} ms, p99 {p99_ms:.1f} ms, "
        f"longest {took_ms[-1]:.1f} ms of {len(took_ms)}",
        held=judged_ms <= promised_ms * size.scale.slack,
    )
