"""Random workflows, async and plain, with a crash after every entry.

Journals of async ones go on with the next Python.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import multiprocessing
import os
import platform
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.bounds import INSTALL_S
from tests.sdk.workflow import journal_file, program
from tests.sdk.workflow.model import Stuck
from tests.sdk.workflow.play import Make, check_again, played, recorded
from tests.sdk.workflow.sync import program as plain_program
from tests.soak.result import Result
from tests.soak.scene import spotless

NEXT_PYTHON: Final = "TENURE_TEST_PYTHON_NEXT"
ROOT: Final = Path(__file__).parents[2]
PROCESSES: Final = 2
CHUNK: Final = 50
MAKERS: Final[dict[str, Make]] = {"async": program.make, "plain": plain_program.make}


class Size(msgspec.Struct, frozen=True):
    """How many programs are played, and how many journals go on with the next Python."""

    programs: int
    journals: int


SIZES: Final = {False: Size(10_000, 1_000), True: Size(20, 10)}


async def run(small: bool) -> list[Result]:
    """Play programs in some processes, then give journals to another interpreter."""
    size = SIZES[small]
    # A copy of this process would have its objects without their threads, and wait for those.
    fresh = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(PROCESSES, mp_context=fresh) as pool:
        played = [await _play(pool, kind, size.programs) for kind in MAKERS]
    return [*played, await _next_python(size.journals)]


async def _play(pool: concurrent.futures.Executor, kind: str, count: int) -> Result:
    loop = asyncio.get_running_loop()
    chunks = [range(at, min(at + CHUNK, count)) for at in range(0, count, CHUNK)]
    found = await asyncio.gather(
        *(loop.run_in_executor(pool, _complaints, kind, seeds) for seeds in chunks)
    )
    return spotless(
        f"generated {kind} programs: {count:,}, a crash after every entry",
        "the result of a run without crashes, each recorded step ran once",
        f"{count:,} played",
        [each for some in found for each in some],
    )


def _complaints(kind: str, seeds: range) -> list[str]:
    make = MAKERS[kind]
    found = []
    for seed in seeds:
        try:
            first = played(seed, crashes=True, make=make)
            check_again(seed, recorded(first), make)
        except (AssertionError, Stuck) as error:
            found.append(f"{kind} program {seed}: {error!r}")
    return found


async def _next_python(count: int) -> Result:
    """Let journals that were made here go on with another interpreter."""
    name = f"generated programs: {count:,} journals of Python {platform.python_version()}"
    promised = "go on with the next Python"
    python = os.environ.get(NEXT_PYTHON)
    if python is None:
        return Result(name, promised, f"not run: {NEXT_PYTHON} names no interpreter")
    with tempfile.TemporaryDirectory(prefix="tenure-next-") as folder:
        path = Path(folder) / "journals.json"
        journal_file.write(path, [(seed, played(seed, crashes=True)) for seed in range(count)])
        interpreter = await _install(python, Path(folder) / "venv")
        code, text = await _call(interpreter, "-m", "tests.sdk.workflow.journal_file", str(path))
        if code:
            return Result(name, promised, text[-500:], held=False)
        said = json.loads(text)
    return spotless(f"{name} with {said['version']}", promised, f"{count:,}", said["complaints"])


async def _install(python: str, folder: Path) -> str:
    """Make an environment of an interpreter with what Tenure needs."""
    interpreter = str(folder / "bin" / "python")
    locked = ("--require-hashes", "--no-deps", "-r", str(ROOT / "requirements.lock"))
    for command in (
        (python, "-m", "venv", str(folder)),
        (interpreter, "-m", "pip", "--quiet", "install", *locked),
    ):
        code, text = await _call(*command)
        assert code == 0, text
    return interpreter


async def _call(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )
    async with asyncio.timeout(INSTALL_S * 4):
        said, _ = await process.communicate()
    return process.returncode or 0, said.decode()
