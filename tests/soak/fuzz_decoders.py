"""Every decoder under a fuzzer that sees which branches are taken."""

from __future__ import annotations

import importlib.util
import random
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bounds import LONG_WORK_S
from tests.fuzz.target import TARGETS, mutated
from tests.soak.fuzz_http import SMALL_SEED
from tests.soak.result import Result
from tests.wire.process import Process

RUNS: Final = 200_000
SECONDS: Final = 10
SMALL_RUNS: Final = 300
_TAIL: Final = 4_000


async def run(small: bool) -> list[Result]:
    """Give each decoder what it was not made for."""
    seed = SMALL_SEED if small else time.time_ns() % 10**9
    if small:
        return [_mutate(name, seed) for name in TARGETS]
    if importlib.util.find_spec("atheris") is None:
        return [Result("fuzz_decoders", "nothing but values and refusals", "no atheris here")]
    return [await _fuzz(name, seed) for name in TARGETS]


def _mutate(name: str, seed: int) -> Result:
    """Try what was good once, in this process."""
    rng = random.Random(seed)
    for _ in range(SMALL_RUNS):
        TARGETS[name](mutated(name, rng))
    return _result(name, f"seed {seed}: {SMALL_RUNS} inputs", "")


async def _fuzz(name: str, seed: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="tenure-fuzz-") as folder:
        log = Path(folder) / "log"
        process = await Process.spawn(
            (
                *("-m", "tests.fuzz.atheris_target", name, "--runs", str(RUNS)),
                *("--seconds", str(SECONDS), "--seed", str(seed)),
            ),
            log,
        )
        code = await process.wait(LONG_WORK_S)
        said = log.read_text(errors="replace")
    last = said.strip().rpartition("\n")[2]
    return _result(name, f"seed {seed}: {last}", said[-_TAIL:] if code else "")


def _result(name: str, measured: str, fault: str) -> Result:
    return Result(
        f"fuzz_decoders, {name}",
        "nothing but values and refusals",
        measured,
        held=not fault,
        details=(fault,) if fault else (),
    )
