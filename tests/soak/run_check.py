"""``tenure runs check`` over many live runs, of which new code breaks a third."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure import Client
from tests.bounds import COMMAND_S, LONG_WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores, spotless
from tests.soak.sdk_activity import JOURNAL
from tests.soak.sdk_scene import SdkWorker
from tests.soak.sdk_workflow import go_on, nap_until, sleep_and_wait, wait_often
from tests.wire.stage import Stage

CHECK_S: Final = 20.0
SLOTS: Final = 500
HOUR_MS: Final = 3_600_000
STARTED_AT_ONCE: Final = 100


class Size(msgspec.Struct, frozen=True):
    """How many runs live, a third of each shape."""

    runs: int
    scale: Scale


SIZES: Final = {False: Size(1_000, SCALES[False]), True: Size(30, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Check live runs against the next version, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        worker = await SdkWorker.start(stage, server.grpc, slots=SLOTS)
        async with Client(server.grpc) as client:
            await _start(client, size.runs)
            await eventually(
                lambda: _is_at_rest(client), "all at rest", within_s=LONG_WORK_S, every_s=0.2
            )
        journal = worker.journal
        before = journal.read_bytes()
        began_s = time.monotonic()
        code, report = await _check(server.grpc, journal)
        took_s = time.monotonic() - began_s
        complaints = _judge(code, report, size.runs)
        if journal.read_bytes() != before:
            complaints.append("a step was executed")
        return [
            spotless(
                f"check of {size.runs:,} live runs of three shapes, {dialect}",
                "the third that new code breaks is found; nothing is executed",
                f"{report['wouldPark']:,} would park",
                complaints,
            ),
            bound(f"check of {size.runs:,} live runs, {dialect}", CHECK_S, took_s, size.scale),
        ]

    return await on_both_stores(size.scale, scene)


async def _start(client: Client, count: int) -> None:
    """Start runs of three types in turns; those of one get a signal."""
    left = iter(range(count))

    async def start() -> None:
        for number in left:
            if number % 3 == 0:
                await client.start(sleep_and_wait, HOUR_MS)
            elif number % 3 == 1:
                waiting = await client.start(wait_often, 2)
                await waiting.signal(go_on, 1)
            else:
                await client.start(nap_until, time.time() + HOUR_MS / 1_000)

    await asyncio.gather(*(start() for _ in range(min(count, STARTED_AT_ONCE))))


async def _is_at_rest(client: Client) -> bool:
    for status in ("pending", "running"):
        async for _ in client.list_runs(status=status):
            return False
    return True


async def _check(target: str, journal: Path) -> tuple[int, Any]:
    """Run the command; a step that it executed would write to the journal of the worker."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tenure.cli", "runs", "check", "tests.soak.changed_workflow"),
        *("--target", target, "-o", "json"),
        env={**os.environ, JOURNAL: str(journal)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(COMMAND_S):
        output, errors = await process.communicate()
    assert output, errors.decode()
    return process.returncode or 0, json.loads(output)


def _judge(code: int, report: Any, runs: int) -> list[str]:
    """Return what is wrong with a report."""
    found = {each["type"]: each for each in report["groups"]}
    wanted = {
        "sleep_and_wait": ("would park", len(range(0, runs, 3)), 1),
        "wait_often": ("safe", len(range(1, runs, 3)), 1),
        "nap_until": ("safe", len(range(2, runs, 3)), 1),
    }
    said = {name: (each["verdict"], each["runs"], each["shapes"]) for name, each in found.items()}
    complaints = [] if said == wanted else [f"it says {said}, and {wanted} is right"]
    message = found.get("sleep_and_wait", {}).get("message", "")
    words = "at 0 the journal has take_step (step), the code calls check_fraud (changed_workflow.py"
    if words not in message:
        complaints.append(f"the message is {message!r}")
    if code != 1:
        complaints.append(f"the exit code is {code}")
    return complaints
