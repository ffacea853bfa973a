"""The simulation under fresh seeds, each deliberate bug, and the same trace in two processes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sim import mutants
from tests.sim.faults import Faults
from tests.sim.run import Result, run_seed

ROOT = Path(__file__).parents[2]
CHUNKS, CHUNK_SEEDS = 30, 20
SEEDS_MAX = 200
# Every worker process of pytest must collect the same names, so the seeds follow from the day.
FIRST_SEED = int(os.environ.get("TENURE_SIM_SEED") or time.strftime("%y%m%d0000"))


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + CHUNKS * CHUNK_SEEDS, CHUNK_SEEDS))
def test_every_invariant_holds_under_fresh_seeds(first: int) -> None:
    failed = [run_seed(seed) for seed in range(first, first + CHUNK_SEEDS)]
    assert not [result.report for result in failed if result.is_failed]


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_deliberate_bug_is_caught_and_the_engine_passes_the_same_seeds(name: str) -> None:
    caught = _first_failure(name)
    assert caught is not None, f"{name} survived {SEEDS_MAX} seeds"
    faults = mutants.MUTANTS[name].faults
    for seed in range(1, caught.seed + 1):
        assert _complaint(seed, faults) == ""


@functools.cache
def _complaint(seed: int, faults: Faults) -> str:
    """Run the engine as it is; many bugs name the same faults."""
    result = run_seed(seed, faults=faults)
    return result.report if result.is_failed else ""


def _first_failure(name: str) -> Result | None:
    for seed in range(1, SEEDS_MAX + 1):
        result = run_seed(seed, mutant=name)
        if result.is_failed:
            return result
    return None


def test_a_seed_gives_the_same_trace_in_two_processes() -> None:
    digests = [_digests(hash_seed) for hash_seed in ("1", "2")]
    assert digests[0] == digests[1]


def _digests(hash_seed: str) -> list[str]:
    code = (
        "from tests.sim.run import run_seed\n"
        f"for seed in range({FIRST_SEED}, {FIRST_SEED + 12}): print(run_seed(seed).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return run.stdout.split()


def test_a_violation_tells_how_to_see_it_again() -> None:
    result = run_seed(1, mutant="lease_too_long")
    assert result.is_failed
    assert "python -m tests.sim --seed 1 --trace --mutant lease_too_long" in result.report
