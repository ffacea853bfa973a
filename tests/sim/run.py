"""Runs seeds and says how to run a failing one again."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from types import FrameType

import msgspec

from tests.sim.faults import Faults
from tests.sim.trace import Violation
from tests.sim.world import World

CHUNK = 20
SECONDS_MAX = 20  # Of CPU time, a hundred times what a seed takes: it runs in circles.


class Result(msgspec.Struct, frozen=True):
    """What became of one seed."""

    seed: int
    report: str
    is_failed: bool
    digest: str
    command_count: int
    trace: list[str] = []


def run_seed(seed: int, *, mutant: str = "", faults: Faults | None = None) -> Result:
    """Run one seed, under the faults that it draws or under those given."""
    if mutant:
        from tests.sim import mutants  # noqa: PLC0415 -- it patches what it imports.

        with mutants.applied(mutant) as named:
            return _run(seed, named, f" --mutant {mutant}")
    return _run(seed, faults, "")


class TooLong(BaseException):
    """A world runs in circles; not an `Exception`, so that nothing in it takes it for its own."""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(_number: int, frame: FrameType | None) -> None:
        raise TooLong(f"in {frame}")

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
    # A world lives for a moment and is dropped whole; collecting in it takes a tenth of its time.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def _run(seed: int, faults: Faults | None, option: str) -> Result:
    world = World(seed, faults)
    error: BaseException | None = None
    try:
        with _limited():
            world.run()
    except (Exception, TooLong) as caught:  # noqa: BLE001 -- whatever ends a world is its finding.
        error = caught
    lines = world.trace.lines
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    count = world.request_log.command_count
    if error is None:
        report = f"seed {seed} passed: {count} commands, {world.now_ms / 1000:.0f} s, {digest[:16]}"
        return Result(
            seed, report, is_failed=False, digest=digest, command_count=count, trace=lines
        )
    about = error.about if isinstance(error, Violation) else ()
    shown = "\n".join(world.trace.about(about))
    report = (
        f"seed {seed} failed: {type(error).__name__}: {error}\n"
        f"  python -m tests.sim --seed {seed} --trace{option}\n{shown}\n"
    )
    return Result(seed, report, is_failed=True, digest=digest, command_count=count, trace=lines)


def _run_chunk(start: int, count: int, mutant: str) -> list[Result]:
    found = []
    for seed in range(start, start + count):
        result = run_seed(seed, mutant=mutant)
        if result.is_failed:
            found.append(msgspec.structs.replace(result, trace=[]))
    return found


def run_seeds(start: int, count: int, *, go_on: bool = False, mutant: str = "") -> list[Result]:
    """Run seeds on all cores; return those that failed, after the first unless told to go on."""
    chunks = [(at, min(CHUNK, start + count - at)) for at in range(start, start + count, CHUNK)]
    failed: list[Result] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(_run_chunk, at, amount, mutant) for at, amount in chunks]
        for future in futures:
            failed += future.result()
            if failed and not go_on:
                pool.shutdown(cancel_futures=True)
                break
    return failed
