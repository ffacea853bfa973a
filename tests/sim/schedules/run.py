"""Runs seeds, and says how to run a failing one again."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter

import msgspec

from tests.sim.schedules import mutants
from tests.sim.schedules.world import ScheduleWorld, Size
from tests.sim.trace import Violation


class Result(msgspec.Struct, frozen=True):
    """What became of one seed: without a report it has passed."""

    seed: int
    ticks: int
    skips: dict[str, int]
    report: str = ""
    trace: list[str] = []


def run_seed(seed: int, size: Size, *, mutant: str = "") -> Result:
    """Run one seed, with a deliberate bug if one is named."""
    with mutants.applied(mutant) if mutant else contextlib.nullcontext():
        world = ScheduleWorld(seed, size)
        report = ""
        gc.disable()
        try:
            world.run()
        except Exception as error:  # noqa: BLE001 -- whatever ends a world is its finding.
            about = error.about if isinstance(error, Violation) else ()
            shown = "\n".join(world.trace.about(about))
            report = f"seed {seed} failed: {type(error).__name__}: {error}\n{shown}\n"
        finally:
            gc.enable()
            gc.collect()
        ticks = world.checker.tick_count
        return Result(seed, ticks, world.checker.reasons, report, world.trace.lines)


def run_until(ticks: int, first: int, size: Size) -> tuple[int, Counter[str], list[str]]:
    """Run seeds until so many ticks were checked; return how many, the skips, and complaints."""
    total, seed, skips, found = 0, first, Counter[str](), list[str]()
    while total < ticks and not found:
        result = run_seed(seed, size)
        total, seed = total + result.ticks, seed + 1
        skips.update(result.skips)
        found += [result.report] if result.report else []
    return total, skips, found
