"""What is measured of a candidate, and how; each measurement has a store of its own.

A number that could not be had is missing. ``recovery_waited_s`` stands in for ``recovery_s`` when
the task did not run again within that time.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.context import Context
from benchmarks.peers import record
from benchmarks.peers.candidate import Candidate
from benchmarks.peers.stage import CandidateError, Stage, open_stage

Numbers = dict[str, float]

START_SECONDS_MAX = 30
POLL_SECONDS = 0.02
SETTLE_SECONDS = 2
# A supervisor starts a killed worker again after this time.
RESTART_SECONDS = 1
TRICKLE_SECONDS = 0.5
# Candidates that answer sooner are compared in turns of so many tasks.
QUICK_MS = 20
TURN_COUNT = 50
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Bounds:
    """How much to do, and how long at most. Rates are of what was done in that time."""

    rounds: int
    turns: int
    drain_count: int
    bulk_count: int
    enqueue_seconds: float
    drain_seconds: float
    bulk_seconds: float
    idle_count: int
    idle_seconds: float
    paced_seconds: float
    paced_rate: float
    rest_seconds: float
    recovery_seconds: float


Measurement = Callable[[Stage, Bounds], Awaitable[Numbers]]

QUICK = Bounds(
    rounds=1,
    turns=2,
    drain_count=4_000,
    bulk_count=10_000,
    enqueue_seconds=2,
    drain_seconds=3,
    bulk_seconds=4,
    idle_count=20,
    idle_seconds=3,
    paced_seconds=2,
    paced_rate=100,
    rest_seconds=2,
    recovery_seconds=8,
)
FULL = Bounds(
    rounds=3,
    turns=40,
    drain_count=50_000,
    bulk_count=100_000,
    enqueue_seconds=6,
    drain_seconds=8,
    bulk_seconds=30,
    idle_count=200,
    idle_seconds=12,
    paced_seconds=8,
    paced_rate=100,
    rest_seconds=8,
    recovery_seconds=60,
)


async def measure(
    context: Context, candidates: Sequence[Candidate], bounds: Bounds, report: Callable[[str], None]
) -> dict[str, Numbers]:
    """Measure the candidates in turns, so that all of them meet the same machine.

    Of several rounds the best counts, for whatever else a machine does only makes it slower: with
    all its numbers, because a rate of one round and the CPU time of another say nothing. A
    measurement that fails is reported and left out.
    """
    found: dict[str, Numbers] = {each.name: {} for each in candidates}
    for name, (measurement, is_better) in MEASUREMENTS.items():
        rounds = 1 if is_better is None else bounds.rounds
        for number in range(1, rounds + 1):
            for candidate in candidates:
                report(f"  {name}, round {number} of {rounds}: {candidate.title}")
                numbers = found[candidate.name]
                try:
                    measured = await _measure_once(context, candidate, bounds, measurement)
                except Exception as error:  # noqa: BLE001 (no candidate may stop the run)
                    report(f"{candidate.name}: {name} failed: {type(error).__name__}: {error}")
                    numbers["failures"] = numbers.get("failures", 0) + 1
                else:
                    if is_better is None or is_better(measured, numbers):
                        numbers |= measured
    quick = [
        each for each in candidates if found[each.name].get("idle_p50_ms", math.inf) < QUICK_MS
    ]
    report(f"  latency in turns: {', '.join(each.title for each in quick)}")
    try:
        for name, numbers in (await _latency_in_turns(context, quick, bounds)).items():
            found[name] |= numbers
    except Exception as error:  # noqa: BLE001 (what was measured before is kept)
        report(f"latency in turns failed: {type(error).__name__}: {error}")
    return found


def _drains_faster(measured: Numbers, before: Numbers) -> bool:
    return measured["drain_1_per_s"] > before.get("drain_1_per_s", 0)


async def _latency_in_turns(
    context: Context, candidates: Sequence[Candidate], bounds: Bounds
) -> dict[str, Numbers]:
    """Measure those that answer within milliseconds beside each other, a few tasks at a time.

    The speed of a machine that others use as well changes within seconds, by more than what they
    differ.
    """
    samples: dict[str, list[list[float]]] = {each.name: [] for each in candidates}
    async with AsyncExitStack() as stack:
        stages = {}
        for candidate in candidates:
            stage = await stack.enter_async_context(open_stage(context, candidate))
            stages[candidate.name] = stage
            await stage.start_worker()
            await _warm_up(stage)
            await stage.call("one_by_one", count=bounds.idle_count, seconds=bounds.idle_seconds)
        order = list(stages)
        for _ in range(bounds.turns):
            for name in order:
                samples[name] += await stages[name].call(
                    "one_by_one", count=TURN_COUNT, seconds=bounds.idle_seconds
                )
            order.reverse()
        return {name: _percentiles(stages[name], "idle", took) for name, took in samples.items()}


async def _measure_once(
    context: Context, candidate: Candidate, bounds: Bounds, measurement: Measurement
) -> Numbers:
    if measurement is not recovery_set:
        async with open_stage(context, candidate) as stage:
            return await measurement(stage, bounds)
    if not candidate.short_recovery:
        return {}
    async with open_stage(context, candidate, PEER_SHORT_RECOVERY="1") as stage:
        return await measurement(stage, bounds)


async def drain_one(stage: Stage, bounds: Bounds) -> Numbers:
    """Measure how fast one worker process completes what waits, and the CPU time per task."""
    drained = await _drain(stage, bounds.drain_count, bounds.enqueue_seconds, bounds, workers=1)
    return {
        "enqueue_per_s": drained.enqueue_rate,
        "drain_1_per_s": drained.rate,
        "cpu_ms_per_task": drained.cpu_ms,
        "repeated_runs": drained.repeated_runs,
        "ahead_of_store": drained.ahead_of_store,
    }


async def drain_two(stage: Stage, bounds: Bounds) -> Numbers:
    """Measure how fast two worker processes complete what waits."""
    drained = await _drain(stage, bounds.drain_count, bounds.enqueue_seconds, bounds, workers=2)
    return {"drain_2_per_s": drained.rate, "repeated_runs_2": drained.repeated_runs}


async def drain_bulk(stage: Stage, bounds: Bounds) -> Numbers:
    """Measure one worker process right after a bulk load."""
    drained = await _drain(stage, bounds.bulk_count, bounds.bulk_seconds, bounds, workers=1)
    return {
        "bulk_count": drained.enqueued,
        "bulk_enqueue_per_s": drained.enqueue_rate,
        "bulk_drain_per_s": drained.rate,
    }


async def latency(stage: Stage, bounds: Bounds) -> Numbers:
    """Measure submit → result one by one and at an even pace, and the CPU use at rest."""
    await stage.start_worker()
    await _warm_up(stage)
    await asyncio.sleep(SETTLE_SECONDS)
    began, used = time.monotonic(), stage.cpu_seconds(with_producer=False)
    await asyncio.sleep(bounds.rest_seconds)
    used = stage.cpu_seconds(with_producer=False) - used
    numbers = {"rest_cpu_percent": 100 * used / (time.monotonic() - began)}
    # Not counted: caches fill, and the first log file of a store grows.
    await stage.call("one_by_one", count=bounds.idle_count // 2, seconds=bounds.idle_seconds / 2)
    idle = await stage.call("one_by_one", count=bounds.idle_count, seconds=bounds.idle_seconds)
    numbers |= _percentiles(stage, "idle", idle)
    paced = await stage.call("at_rate", rate=bounds.paced_rate, seconds=bounds.paced_seconds)
    return numbers | _percentiles(stage, "paced", paced)


async def recovery(stage: Stage, bounds: Bounds) -> Numbers:
    """Measure how long a task waits whose worker is killed, until another worker runs it.

    Another worker stands by, the killed one is started again after a second, and other tasks go
    on coming: whatever makes a candidate notice has its chance.
    """
    holder = await stage.start_worker()
    await _warm_up(stage)
    number: int = await stage.call("hold")
    await _wait_for(stage, number, count=1, seconds=START_SECONDS_MAX)
    await stage.start_worker()
    await asyncio.sleep(SETTLE_SECONDS)
    killed_ns = time.monotonic_ns()
    stage.kill_worker(holder)
    is_restarted = False
    while (waited := (time.monotonic_ns() - killed_ns) / 1e9) < bounds.recovery_seconds:
        if waited > RESTART_SECONDS and not is_restarted:
            await stage.start_worker()
            is_restarted = True
        again = [run for run in _runs_of(stage, number) if run.at_ns > killed_ns]
        if again:
            return {"recovery_s": (again[0].at_ns - killed_ns) / 1e9}
        await stage.call("enqueue", count=1, seconds=TRICKLE_SECONDS)
        await asyncio.sleep(TRICKLE_SECONDS / 10)
    return {"recovery_waited_s": bounds.recovery_seconds}


async def recovery_set(stage: Stage, bounds: Bounds) -> Numbers:
    """Measure the same where something is set for it."""
    return {f"short_{name}": value for name, value in (await recovery(stage, bounds)).items()}


# What is taken of each candidate, and when a further round is better; None is for one round.
MEASUREMENTS: dict[str, tuple[Measurement, Callable[[Numbers, Numbers], bool] | None]] = {
    "drain with one worker": (drain_one, _drains_faster),
    "drain with two workers": (drain_two, None),
    "drain after a bulk load": (drain_bulk, None),
    "latency": (latency, None),
    "recovery": (recovery, None),
    "recovery, set to be short": (recovery_set, None),
}


@dataclass(frozen=True)
class _Drained:
    enqueued: int
    enqueue_rate: float
    rate: float
    cpu_ms: float
    repeated_runs: int
    # Runs before the store was asked for the last time that were not yet done for it.
    ahead_of_store: int


async def _drain(
    stage: Stage, count: int, seconds: float, bounds: Bounds, *, workers: int
) -> _Drained:
    """Fill the queue, then start workers and count what is done in the store.

    The clock, and the CPU time of the workers, begin with the first run: loading a program is not
    its speed.
    """
    used = stage.cpu_seconds()
    enqueued, took = await stage.call("enqueue", count=count, seconds=seconds)
    enqueue_cpu = stage.cpu_seconds() - used
    for _ in range(workers):
        await stage.start_worker()
    await stage.wait_for_runs(1, seconds=START_SECONDS_MAX)
    began, used = time.monotonic(), stage.cpu_seconds()
    ran, done = await _wait_until_done(stage, int(enqueued), seconds=bounds.drain_seconds)
    elapsed = time.monotonic() - began
    drain_cpu = stage.cpu_seconds() - used
    runs = Counter(run.number for run in record.read(stage.folder))
    if done == 0:
        raise CandidateError(f"nothing was done within {bounds.drain_seconds} s\n{stage.logs()}")
    return _Drained(
        enqueued=int(enqueued),
        enqueue_rate=enqueued / took,
        rate=done / elapsed,
        cpu_ms=1_000 * (enqueue_cpu / enqueued + drain_cpu / done),
        repeated_runs=runs.total() - len(runs),
        ahead_of_store=max(0, ran - done),
    )


async def _wait_until_done(stage: Stage, count: int, *, seconds: float) -> tuple[int, int]:
    """Wait until everything is done or the time is over; return how many ran, then how many are.

    The store is asked only when every task has run: counting its rows costs time of the database.
    """
    deadline = time.monotonic() + seconds
    while True:
        await asyncio.sleep(POLL_SECONDS)
        is_over = time.monotonic() >= deadline
        ran = record.count(stage.folder)
        if ran >= count or is_over:
            done: int = await stage.call("completed")
            if done >= count or is_over:
                return ran, done


async def _warm_up(stage: Stage) -> None:
    """Wait until a worker takes tasks."""
    seen = record.count(stage.folder)
    await stage.call("enqueue", count=5, seconds=TRICKLE_SECONDS)
    await stage.wait_for_runs(seen + 5, seconds=START_SECONDS_MAX)


async def _wait_for(stage: Stage, number: int, *, count: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while len(_runs_of(stage, number)) < count:
        if time.monotonic() > deadline:
            raise CandidateError(f"the task did not start within {seconds} s\n{stage.logs()}")
        await asyncio.sleep(POLL_SECONDS)


def _runs_of(stage: Stage, number: int) -> list[record.Run]:
    return [run for run in record.read(stage.folder) if run.number == number]


def _percentiles(stage: Stage, name: str, samples: list[list[float]]) -> Numbers:
    """Return percentiles of the time to the result, and the median time to the start."""
    took = [ms for _, _, ms in samples if ms >= 0]
    if len(took) < 2:
        raise CandidateError(f"no results\n{stage.logs()}")
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    numbers = {f"{name}_p{percent}_ms": cuts[percent - 1] for percent in PERCENTILES}
    started = {run.number: run.at_ns for run in record.read(stage.folder)}
    waits = [
        (started[int(number)] - submitted_ns) / 1e6
        for number, submitted_ns, _ in samples
        if int(number) in started
    ]
    numbers[f"{name}_start_p50_ms"] = statistics.median(waits)
    if lost := len(samples) - len(took):
        numbers[f"{name}_unanswered"] = lost
    return numbers
