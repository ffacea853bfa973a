"""Workflows of ten steps that do nothing, beside those of others: ``make bench ONLY=steps``.

Every candidate keeps as many workflows going as it does best: ours 500; the others are slower with
more. One producer, one worker process; timed from the first start to the last result, so that
starting and ending count. A step is recorded before the next one begins. Of ours also: 200 at a
time, a lone workflow step by step, the write-ahead log per step, and a re-run of a journal with
5,000 entries. Those that can do it are also measured with steps that go to a queue, one after the
other and many at once. The environments of the others are made by ``make bench-peers``.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

import asyncpg

from benchmarks.context import FULL, Context
from benchmarks.database import wal_position
from benchmarks.peers import record
from benchmarks.peers.candidate import STEP_CANDIDATES, Candidate
from benchmarks.peers.stage import CandidateError, Stage, open_stage
from benchmarks.rerun import rerun_ms

STEPS = 10
LONE_STEPS = 500
WARM_UP_RUNS = 50
START_SECONDS_MAX = 30
# A workflow maps over so many items, and so many workflows do it at a time.
ITEMS = 1_000
MAPS = 2


@dataclass(frozen=True)
class Bounds:
    """How long to start workflows, and how often; of several rounds the best counts."""

    rounds: int
    seconds: float


BOUNDS = {True: Bounds(3, 8.0), False: Bounds(1, 2.0)}


async def run(context: Context) -> dict[str, float]:
    """Measure all candidates in turns, then what is ours alone."""
    bounds = BOUNDS[context.scale == FULL]
    numbers: dict[str, float] = {}
    for _ in range(bounds.rounds):
        for candidate in _present(context):
            _keep_best(numbers, _name(candidate), await _measure(context, candidate, bounds))
            if candidate.has_queued_steps:
                _keep_each(numbers, _name(candidate), await _queued(context, candidate, bounds))
    for candidate in (each for each in STEP_CANDIDATES if each.is_ours):
        numbers |= await _lone(context, candidate)
    numbers["rerun_5000_ms"] = rerun_ms(entries=5_000)
    numbers |= _ratio(numbers)
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


def _present(context: Context) -> list[Candidate]:
    """Return the candidates that were asked for and have an environment."""
    asked = [
        each
        for each in STEP_CANDIDATES
        if not context.candidates or each.name in context.candidates
    ]
    return [each for each in asked if each.python.exists()]


def _name(candidate: Candidate) -> str:
    return candidate.store if candidate.is_ours else candidate.name


def _keep_best(numbers: dict[str, float], name: str, measured: dict[str, float]) -> None:
    if measured and measured["per_s"] > numbers.get(f"{name}.per_s", 0):
        numbers |= {f"{name}.{what}": value for what, value in measured.items()}


def _keep_each(numbers: dict[str, float], name: str, measured: dict[str, float]) -> None:
    for what, value in measured.items():
        numbers[f"{name}.{what}"] = max(value, numbers.get(f"{name}.{what}", 0))


async def _measure(context: Context, candidate: Candidate, bounds: Bounds) -> dict[str, float]:
    """Measure one candidate; one that fails is left out, and the reason printed."""
    try:
        found = await _flow(context, candidate, bounds, width=candidate.workflow_count)
        if candidate.is_ours:
            found["per_s_200"] = (await _flow(context, candidate, bounds, width=200))["per_s"]
    except CandidateError as error:
        print(f"{candidate.name} failed: {error}")
        return {}
    return found


async def _flow(
    context: Context, candidate: Candidate, bounds: Bounds, *, width: int
) -> dict[str, float]:
    async with open_stage(context, candidate, PEER_STEPS=str(STEPS)) as stage:
        await stage.start_worker()
        await _warm_up(stage)
        began_wal, used = await _wal(stage), stage.cpu_seconds()
        done, elapsed = await stage.call(
            "run_workflows", count=1_000_000, width=width, seconds=bounds.seconds
        )
        steps = done * STEPS
        found = {"per_s": steps / elapsed, "cpu_us": (stage.cpu_seconds() - used) * 1e6 / steps}
        if candidate.is_ours and candidate.store == "postgres":
            found["wal_bytes"] = (await _wal(stage) - began_wal) / steps
        return found


async def _queued(context: Context, candidate: Candidate, bounds: Bounds) -> dict[str, float]:
    """Measure steps that go to a queue; one that fails is left out, and the reason printed."""
    environment = {"PEER_STEPS": str(STEPS), "PEER_ITEMS": str(ITEMS)}
    found = {}
    for what, kind, width, size in (
        ("queued_per_s", "queued", candidate.workflow_count, STEPS),
        ("map_items_per_s", "map", MAPS, ITEMS),
    ):
        try:
            async with open_stage(context, candidate, **environment) as stage:
                await stage.start_worker()
                await _run_some(stage, kind, count=2, width=2, seconds=bounds.seconds)
                done, elapsed = await _run_some(
                    stage, kind, count=1_000_000, width=width, seconds=bounds.seconds
                )
        except CandidateError as error:
            print(f"{candidate.name} failed: {error}")
        else:
            found[what] = done * size / elapsed
    return found


async def _run_some(
    stage: Stage, kind: str, *, count: int, width: int, seconds: float
) -> tuple[int, float]:
    done, elapsed = await stage.call(
        "run_workflows", count=count, width=width, seconds=seconds, kind=kind
    )
    return done, elapsed


async def _warm_up(stage: Stage) -> None:
    await stage.call("run_workflows", count=WARM_UP_RUNS, width=5, seconds=START_SECONDS_MAX)


async def _wal(stage: Stage) -> int:
    if stage.candidate.store != "postgres":
        return 0
    connection = await asyncpg.connect(stage.context.server.dsn())
    try:
        return await wal_position(connection)
    finally:
        await connection.close()


async def _lone(context: Context, candidate: Candidate) -> dict[str, float]:
    """Measure the time between two steps of a lone workflow."""
    async with open_stage(context, candidate, PEER_STEPS=str(LONE_STEPS)) as stage:
        await stage.start_worker()
        for _ in range(2):
            await stage.call("run_workflows", count=1, width=1, seconds=START_SECONDS_MAX)
        last = max(each.number for each in record.read(stage.folder))
        at_ns = sorted(each.at_ns for each in record.read(stage.folder) if each.number == last)
    between_ms = [(later - sooner) / 1e6 for sooner, later in itertools.pairwise(at_ns)]
    return {f"{candidate.store}.lone_p50_ms": statistics.median(between_ms)}


def _ratio(numbers: dict[str, float]) -> dict[str, float]:
    """Divide our slower rate by the best of the others that survive a crash."""
    ours = [numbers.get(f"{store}.per_s") for store in ("postgres", "sqlite")]
    rates = [
        numbers[f"{each.name}.per_s"]
        for each in STEP_CANDIDATES
        if each.is_durable and not each.is_ours and f"{each.name}.per_s" in numbers
    ]
    known = [each for each in ours if each is not None]
    return {"ratio_best_durable": min(known) / max(rates)} if known and rates else {}
