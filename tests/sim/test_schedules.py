"""Schedules under fresh seeds of their simulation, and each deliberate bug."""

from __future__ import annotations

import os
import time

import pytest

from tests.sim.schedules import mutants
from tests.sim.schedules.run import run_seed
from tests.sim.schedules.world import Size

FIRST_SEED = int(os.environ.get("TENURE_SIM_SEED") or time.strftime("%y%m%d0000"))
SEEDS = 16
SEEDS_MAX = 60
SIZE = Size(servers=8, schedules=8, seconds=40)
ALONE = Size(servers=1, schedules=8, seconds=40)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_each_tick_fires_once_or_is_in_one_skipped_range(seed: int) -> None:
    assert run_seed(seed, SIZE).report == ""


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_deliberate_bug_is_caught_and_the_scheduler_passes_the_same_seed(name: str) -> None:
    for seed in range(1, SEEDS_MAX):
        if run_seed(seed, SIZE, mutant=name).report:
            assert run_seed(seed, SIZE).report == ""
            return
    pytest.fail(f"{name} survived {SEEDS_MAX} seeds")


def test_one_scheduler_alone_fires_everything_too() -> None:
    assert run_seed(1, ALONE).report == ""


def test_a_seed_gives_the_same_trace_again() -> None:
    assert run_seed(7, SIZE).trace == run_seed(7, SIZE).trace


def test_a_world_checks_many_ticks_and_all_reasons() -> None:
    results = [run_seed(seed, SIZE) for seed in range(1, 13)]
    reasons = {reason for result in results for reason in result.skips}
    assert sum(result.ticks for result in results) > 10_000
    assert reasons == {
        *("catchup_limit", "catchup_window", "disabled", "overlap", "paused", "replaced")
    }
