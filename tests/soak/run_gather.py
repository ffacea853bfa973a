"""Thousands of activities that a run waits for with gather, and that is run again from nothing."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from typing import Final

import msgspec

from tenure import Client
from tests.bounds import LONG_WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_child import gather_many
from tests.soak.sdk_scene import SdkWorker
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

HAND_OUTS: Final = 60
ENTRIES: Final = 150_000
CODE: Final = "tests.soak.sdk_child"
_SENT: Final = re.compile(r"^tenure_run_rerun_entries_total\S* (\S+)$", re.MULTILINE)


class Size(msgspec.Struct, frozen=True):
    """How many activities, how long each takes, and how many run at a time."""

    activities: int
    milliseconds: int
    slots: int
    scale: Scale


SIZES: Final = {False: Size(2_000, 400, 100, SCALES[False]), True: Size(80, 250, 20, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Gather on both stores; no run stays in the memory of the worker."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        options = ("--workflows", CODE, "--activities", CODE, "--warm-runs", "0")
        # It has free slots, and does not stay while others work.
        await SdkWorker.start(stage, server.grpc, slots=4, options=(*options, "--no-activities"))
        worker = await SdkWorker.start(
            stage, server.grpc, slots=size.slots, options=(*options, "--no-workflows")
        )
        count = size.activities
        async with Client(server.grpc) as client:
            handle = await client.start(gather_many, count, size.milliseconds)
            total = await handle.result(timeout=LONG_WORK_S)
            hand_outs = (await handle.describe()).attempt
        sent = await _entries_sent(server)
        name = f"gather over {count:,} activities, no warm runs, {dialect}"
        expected = count * (count - 1) // 2
        complaints = [] if total == expected else [f"the sum is {total}, not {expected}"]
        done = len(worker.tail.of("item-done"))
        if done != count:
            complaints.append(f"{done:,} activities were run")
        return [
            Result(
                f"{name}: hand-outs of the run",
                f"under {HAND_OUTS}",
                str(hand_outs),
                held=hand_outs < HAND_OUTS,
            ),
            Result(
                f"{name}: entries sent to run it again",
                f"under {ENTRIES:,}",
                f"{sent:,}",
                held=sent < ENTRIES,
            ),
            spotless(name, "each is run once", f"{done:,} were run", complaints),
        ]

    return await on_both_stores(size.scale, scene)


async def _entries_sent(server: ServerProcess) -> int:
    text = await asyncio.to_thread(_metrics, server.http)
    return sum(int(float(value)) for value in _SENT.findall(text))


def _metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        text: str = answer.read().decode()
    return text
