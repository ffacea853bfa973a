"""What each speed memory of the engine saves: with and without it, in turns, on both stores.

``off`` numbers are medians over the rounds; ``ratio`` is the median of off to on within a round,
``ratio.low`` and ``ratio.high`` are its extremes. Steps of one caller on an idle engine are in
microseconds: above 1 the memory pays. Rates are tasks per second: below 1 it pays. Memories without
a setting are replaced by what knows nothing. docs/architecture/speed.md says what they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest import mock

from benchmarks.context import Context
from benchmarks.database import Database
from benchmarks.engine import measure_flow
from benchmarks.flow import claim
from benchmarks.load import NAMESPACE, finish, new_task, open_engine, register
from benchmarks.switch import BY_CLAIM, SNAPSHOT_CASES, measure_beside_snapshot
from tenure.core.task.enqueue_window import EnqueueWindow
from tenure.core.task.record import Task
from tenure.core.worker.record import WorkerMode
from tenure.engine.batch.single_write import SingleWriter
from tenure.engine.batch.store_time import StoreTime
from tenure.engine.claim.position import ClaimPositions
from tenure.engine.engine import Engine
from tenure.engine.settings import Settings
from tenure.engine.task import command as c

ROUND_COUNT = 6
TASK_COUNT = 60
# So long a poll waits before the task that it gets is enqueued.
SETTLE_SECONDS = 0.003
Patch = Callable[[], AbstractContextManager[Any]]
Case = tuple[Settings | None, Patch]
Make = Callable[[], Database]


async def _no_single_write(_self: object, _commands: object, _context: object) -> None:
    """Let every batch be a transaction."""


def _without(owner: type, name: str, answer: object) -> Case:
    """Replace a method by one that knows nothing."""

    # A plain function: a mock would cost more than what it stands for.
    def forgetful(*_: object, **__: object) -> object:
        return answer

    return None, lambda: mock.patch.object(owner, name, forgetful)


ON: Case = (None, contextlib.nullcontext)
CASES: dict[str, Case] = {
    "on": ON,
    "direct_hand_out": (BY_CLAIM, contextlib.nullcontext),
    "row_cache": (Settings(cached_rows=False), contextlib.nullcontext),
    "enqueue_window": _without(EnqueueWindow, "has", answer=False),
    "single_write": (None, lambda: mock.patch.object(SingleWriter, "run", _no_single_write)),
    "known_receivers": _without(SingleWriter, "learn", None),
    "sole_task": _without(ClaimPositions, "sole", None),
    "store_time": _without(StoreTime, "ahead_ms", None),
    # Twice the same: what differs between these two is noise.
    "on_again": ON,
}
FLOW_CASES = ("on", "direct_hand_out", "row_cache", "enqueue_window", "store_time", "on_again")


async def run(context: Context) -> dict[str, float]:
    """Measure both stores."""
    numbers: dict[str, float] = {}
    seconds = context.scale.seconds
    flows = {name: CASES[name] for name in FLOW_CASES}
    stores: dict[str, Make] = {"sqlite": context.sqlite, "postgres": context.postgres}
    for store, make in stores.items():
        numbers |= await _compare(f"{store}.idle", CASES, partial(_idle, make))
        numbers |= await _compare(f"{store}.flow", flows, partial(_flow, make, seconds))
        context.remove_databases()
    beside: dict[str, Case] = {
        name: (settings, contextlib.nullcontext) for name, settings in SNAPSHOT_CASES.items()
    }
    numbers |= await _compare("postgres.snapshot", beside, partial(_beside, context, 3 * seconds))
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


async def _compare(
    prefix: str, cases: dict[str, Case], measure: Callable[[Case], Awaitable[dict[str, float]]]
) -> dict[str, float]:
    """Measure all cases in turns, every other round backwards."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(ROUND_COUNT):
        for name in list(cases)[:: -1 if number % 2 else 1]:
            with cases[name][1]():
                for step, value in (await measure(cases[name])).items():
                    found[name, step].append(value)
    numbers = {}
    for (name, step), values in found.items():
        ratios = [off / on for off, on in zip(values, found["on", step], strict=True)]
        key = f"{prefix}.{name}.{step}"
        numbers[key] = statistics.median(values)
        if name != "on":
            numbers[f"{key}.ratio"] = statistics.median(ratios)
            numbers[f"{key}.ratio.low"] = min(ratios)
            numbers[f"{key}.ratio.high"] = max(ratios)
    return numbers


async def _flow(make: Make, seconds: float, case: Case) -> dict[str, float]:
    return {"rate": (await measure_flow(make(), seconds, case[0])).rate}


async def _beside(context: Context, seconds: float, case: Case) -> dict[str, float]:
    flow = await measure_beside_snapshot(context.postgres(), seconds, case[0])
    return {"rate": flow.rate}


async def _idle(make: Make, case: Case) -> dict[str, float]:
    """Return the medians of one caller: with a poll that waits, and with one that comes later."""
    engine = await open_engine(make().store(), case[0])
    worker_id = (await register(engine, 1, WorkerMode.POLL))[0].worker.id
    steps: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(TASK_COUNT):
        began = time.perf_counter()
        waiting = None
        if number % 2:
            waiting = engine.submit(claim(worker_id, wait_ms=5_000))
            await asyncio.sleep(SETTLE_SECONDS)
            began = time.perf_counter()
        await engine.submit(c.EnqueueTasks(namespace=NAMESPACE, tasks=(new_task(),)))
        if waiting is None:
            began = _note(steps["enqueue_us"], began)
            waiting = engine.submit(claim(worker_id, wait_ms=5_000))
        (task,) = await waiting
        began = _note(steps["deliver_us" if number % 2 else "claim_us"], began)
        await _finish(engine, worker_id, task)
        _note(steps["finish_us"], began)
    await engine.stop()
    return {step: statistics.median(times) for step, times in steps.items()}


def _note(times: list[float], began: float) -> float:
    now = time.perf_counter()
    times.append((now - began) * 1e6)
    return now


async def _finish(engine: Engine, worker_id: str, task: Task) -> None:
    items = (finish(task),)
    await engine.submit(c.FinishTasks(namespace=NAMESPACE, worker_id=worker_id, items=items))
