"""A million ticks of simulated schedules: eight schedulers that crash, and a clock that jumps."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
from collections import Counter
from typing import Final

import msgspec

from tests.sim.schedules import mutants
from tests.sim.schedules.run import run_seed, run_until
from tests.sim.schedules.world import Size
from tests.soak.result import Result
from tests.soak.scene import spotless

PROCESSES: Final = 2
MUTANT_SEEDS: Final = 60
# Far from each other, so that no seed is played twice.
STRIDE: Final = 1_000_000
WORLD: Final = Size(servers=8, schedules=12, seconds=60)


class Amount(msgspec.Struct, frozen=True):
    """How many ticks are checked."""

    ticks: int


AMOUNTS: Final = {False: Amount(1_000_000), True: Amount(20_000)}


async def run(small: bool) -> list[Result]:
    """Play worlds in some processes until enough ticks were checked, then the deliberate bugs."""
    amount = AMOUNTS[small]
    loop = asyncio.get_running_loop()
    fresh = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(PROCESSES, mp_context=fresh) as pool:
        parts = await asyncio.gather(
            *(
                loop.run_in_executor(
                    pool, run_until, amount.ticks // PROCESSES, 1 + number * STRIDE, WORLD
                )
                for number in range(PROCESSES)
            )
        )
        escaped = await asyncio.gather(
            *(loop.run_in_executor(pool, _escaped, name) for name in mutants.MUTANTS)
        )
    total = sum(part[0] for part in parts)
    skips = sum((part[1] for part in parts), Counter[str]())
    return [
        spotless(
            "schedules: 8 schedulers, crashes at every statement, clock jumps of up to an hour",
            "each tick fires once or is in one skipped range",
            f"{total:,} ticks, {skips.total():,} ranges",
            [complaint for part in parts for complaint in part[2]],
        ),
        spotless(
            "schedules: deliberate bugs",
            "each is caught",
            f"{len(mutants.MUTANTS)} bugs",
            [each for each in escaped if each],
        ),
    ]


def _escaped(name: str) -> str:
    """Return a complaint if no seed shows a deliberate bug."""
    for seed in range(1, MUTANT_SEEDS):
        if run_seed(seed, WORLD, mutant=name).report:
            return ""
    return f"{name} was not caught"
