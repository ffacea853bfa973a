"""Two servers on one PostgreSQL: a run at one, its children at the other."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg
import msgspec

from tenure import Client
from tests.bounds import LONG_WORK_S
from tests.soak.journal_read import positions_of
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, spotless
from tests.soak.sdk_child import gather_many, mixed
from tests.soak.sdk_scene import SdkWorker
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage, open_stage

LATE_S: Final = 2.0
CODE: Final = "tests.soak.sdk_child"
# Behind a pooler servers cannot listen to each other.
DEAF: Final = "--pooled"
DEADLOCKS: Final = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
# Statistics are written some time after what they count.
STATISTICS_S: Final = 1.5


class Size(msgspec.Struct, frozen=True):
    """How many children, and how many runs record steps while others end their children."""

    children: int
    milliseconds: int
    runs: int
    rounds: int
    scale: Scale


SIZES: Final = {
    False: Size(500, 20, 100, 30, SCALES[False]),
    True: Size(60, 20, 10, 5, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """First a run whose children end elsewhere, then many that end each other's."""
    size = SIZES[small]
    async with open_stage("postgres", size.scale.settings) as stage:
        here, there = await stage.server(DEAF), await stage.server(DEAF)
        elsewhere = await _elsewhere(stage, here, there, size)
    async with open_stage("postgres", size.scale.settings) as stage:
        here, there = await stage.server(), await stage.server()
        return [*elsewhere, await _crosswise(stage, here, there, size)]


async def _elsewhere(
    stage: Stage, here: ServerProcess, there: ServerProcess, size: Size
) -> list[Result]:
    code = ("--workflows", CODE, "--activities", CODE)
    parents = await SdkWorker.start(stage, here.grpc, options=(*code, "--no-activities"))
    children = await SdkWorker.start(stage, there.grpc, slots=20, options=(*code, "--no-workflows"))
    async with Client(here.grpc) as client:
        handle = await client.start(gather_many, size.children, size.milliseconds)
        total = await handle.result(timeout=LONG_WORK_S)
    last_s = max(line.mono_s for line in children.tail.of("item-done"))
    (gathered,) = parents.tail.of("gathered")
    positions = await positions_of(here.grpc, handle.run_id)
    complaints = []
    if total != size.children * (size.children - 1) // 2:
        complaints.append(f"the sum is {total}")
    if positions != list(range(1, size.children + 2)):
        complaints.append(f"the journal has the positions {positions}")
    name = f"run at one server, {size.children} children at another, without LISTEN"
    return [
        spotless(name, "its journal has no gap", f"{len(positions)} entries", complaints),
        bound(f"{name}: goes on after the last", LATE_S, gathered.mono_s - last_s, size.scale),
    ]


async def _crosswise(stage: Stage, here: ServerProcess, there: ServerProcess, size: Size) -> Result:
    """Let each of two servers end children of runs at the other, which record steps meanwhile."""
    options = ("--workflows", CODE, "--activities", CODE)
    for server in (here, there):
        await SdkWorker.start(stage, server.grpc, slots=50, options=options)
    async with Client(here.grpc) as left, Client(there.grpc) as right:
        runs = [
            await (left if number % 2 else right).start(mixed, size.rounds)
            for number in range(size.runs)
        ]
        totals = [await each.result(timeout=LONG_WORK_S * 2) for each in runs]
    expected = 3 * size.rounds * (size.rounds - 1) // 2
    complaints = [f"a sum is {each}, not {expected}" for each in totals if each != expected]
    deadlocks = await _deadlocks(stage.store)
    if deadlocks:
        complaints.append(f"{deadlocks} deadlocks")
    return spotless(
        f"{size.runs} runs at two servers that end each other's children",
        "no deadlock",
        f"{deadlocks} deadlocks, {4 * size.rounds * size.runs:,} steps and children",
        complaints,
    )


async def _deadlocks(dsn: str) -> int:
    await asyncio.sleep(STATISTICS_S)
    connection = await asyncpg.connect(dsn)
    try:
        count: int = await connection.fetchval(DEADLOCKS)
    finally:
        await connection.close()
    return count
