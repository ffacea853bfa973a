"""How fast schedules fire, beside the engine's bulk enqueue on the same kind of database.

``fires_per_s``: many schedules that are due at once, one tick each, by transactions of as many
schedules as a server takes by default, one after the other. A fire stores a task as an enqueue
does; it also reads and writes its schedule, and writes a row of its own with a unique key.
``service_fires_per_s``: the same by the service of a server, which gives the work lane back to
others for as long as each of its rounds has taken. ``catch_up_fires_per_s``: some schedules that
have missed ticks, as many of each as one look fires.

``enqueues_per_s``: bulk enqueues of as many tasks as a client sends at most, several at a time;
``keyed_enqueues_per_s``: with idempotency keys, which tasks of schedules have too. All take turns;
the best of each counts. The CPU times are those of this process, without the database server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from benchmarks.context import FULL, Context
from benchmarks.database import Database
from benchmarks.flow import SECONDS_MAX, Flow, Stopwatch
from benchmarks.load import (
    CLOCK,
    FRAME_SIZE,
    INPUT,
    NAMESPACE,
    QUEUE,
    SPEC,
    TYPE,
    new_task,
    open_engine,
)
from tenure.core.limits import FIRES_PER_LOOK_MAX, SCHEDULER_BATCH_SIZE, SCHEDULER_FIRES_PER_ROUND
from tenure.core.schedule.record import Rule, ScheduleSpec, Target
from tenure.core.task.record import NewTask
from tenure.engine.engine import Engine
from tenure.engine.schedule.command import CreateSchedule, FireSchedules
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.engine.task.command import EnqueueTasks

# So many schedules that are due at once, and so many tasks of the other side.
COUNTS: Final = {True: 10_000, False: 2_000}
CALLERS: Final = 4
TICK_MS: Final = 1_000
# Of the schedules one in so many tells how long they take, and they get so many times as long.
SAMPLE: Final = 10
LEAD: Final = 2
DAY_MS: Final = 86_400_000
TARGET: Final = Target(type=TYPE, queue=QUEUE, spec=SPEC, input=INPUT)
ROUND: Final = FireSchedules(amount=SCHEDULER_BATCH_SIZE, fires_max=SCHEDULER_FIRES_PER_ROUND)


async def run(context: Context) -> dict[str, float]:
    """Measure both stores."""
    numbers: dict[str, float] = {}
    for name, make in (("sqlite", context.sqlite), ("postgres", context.postgres)):
        measured = await _measure(context, make)
        numbers |= {f"{name}.{measure}": value for measure, value in measured.items()}
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


async def _measure(context: Context, make: Callable[[], Database]) -> dict[str, float]:
    count = COUNTS[context.scale == FULL]
    rates: dict[str, float] = {}
    cpu_us: dict[str, float] = {}
    turns: dict[str, Callable[[], Awaitable[Flow]]] = {
        "fires": lambda: _fires(make(), count, _fire_all),
        "service_fires": lambda: _fires(make(), count, _serve_all),
        "catch_up_fires": lambda: _catch_up(make(), count),
        "enqueues": lambda: _enqueues(make(), count, is_keyed=False),
        "keyed_enqueues": lambda: _enqueues(make(), count, is_keyed=True),
    }
    for _ in range(context.scale.round_count):
        for what, turn in turns.items():
            flow = await turn()
            rates[what] = max(rates.get(what, 0.0), flow.rate)
            cpu_us[what] = min(cpu_us.get(what, flow.cpu_us), flow.cpu_us)
    numbers = {f"{what}_per_s": rate for what, rate in rates.items()}
    numbers |= {f"{what}_cpu_us": value for what, value in cpu_us.items()}
    for what in ("fires", "service_fires", "catch_up_fires"):
        numbers[f"{what}_ratio"] = rates[what] / rates["enqueues"]
        numbers[f"{what}_ratio_keyed"] = rates[what] / rates["keyed_enqueues"]
    return numbers


async def _fires(
    database: Database, count: int, fire: Callable[[Engine, int], Awaitable[None]]
) -> Flow:
    """Fire schedules that have one tick each, all due."""
    engine = await open_engine(database.store(), services=())
    due_at_ms = await _schedules(engine, count)
    await asyncio.sleep(max(0, due_at_ms - CLOCK.now_ms()) / 1_000)
    watch = Stopwatch()
    await fire(engine, count)
    flow = watch.flow(count)
    await engine.stop()
    return flow


async def _catch_up(database: Database, count: int) -> Flow:
    """Fire schedules that have missed as many ticks as one look fires."""
    engine = await open_engine(database.store(), services=())
    spec = ScheduleSpec(rule=Rule(every_ms=TICK_MS), target=TARGET)
    schedule_count = count // FIRES_PER_LOOK_MAX
    await _create(engine, "missed", schedule_count, spec)
    # The last one has missed so many, the first ones more.
    await asyncio.sleep((FIRES_PER_LOOK_MAX + 1) * TICK_MS / 1_000)
    watch = Stopwatch()
    fired = 0
    for _ in range(-(-schedule_count // SCHEDULER_BATCH_SIZE)):
        fired += (await engine.submit(ROUND)).fire_count
    flow = watch.flow(fired)
    await engine.stop()
    return flow


async def _schedules(engine: Engine, count: int) -> int:
    """Create schedules that are due at the same instant, and return it: all are made before it."""
    began_s = time.perf_counter()
    sample = count // SAMPLE
    await _create(engine, "later", sample, _daily(CLOCK.now_ms() - TICK_MS))
    lead_ms = round((time.perf_counter() - began_s) * 1_000 * SAMPLE * LEAD)
    due_at_ms = CLOCK.now_ms() + lead_ms + TICK_MS
    await _create(engine, "due", count, _daily(due_at_ms))
    assert CLOCK.now_ms() < due_at_ms, "some are due before all are there"
    return due_at_ms


def _daily(at_ms: int) -> ScheduleSpec:
    return ScheduleSpec(rule=Rule(every_ms=DAY_MS, offset_ms=at_ms % DAY_MS), target=TARGET)


async def _create(engine: Engine, name: str, count: int, spec: ScheduleSpec) -> None:
    ids = [f"{name}-{number:06}" for number in range(count)]
    for at in range(0, count, FRAME_SIZE):
        await asyncio.gather(
            *(
                engine.submit(CreateSchedule(namespace=NAMESPACE, schedule_id=each, spec=spec))
                for each in ids[at : at + FRAME_SIZE]
            )
        )


async def _fire_all(engine: Engine, count: int) -> None:
    """Fire by one transaction after the other."""
    while count > 0:
        count -= (await engine.submit(ROUND)).fire_count


async def _serve_all(engine: Engine, count: int) -> None:
    """Fire by the rounds of the service, with the pauses that it makes."""
    job = ScheduleFiring()
    alarm = engine.alarms[job.name]
    async with asyncio.timeout(SECONDS_MAX):
        while count > 0:
            count -= (await job.run_once(engine)).count
            if count > 0:
                await alarm.wait(CLOCK, job.interval_ms(engine))


async def _enqueues(database: Database, count: int, *, is_keyed: bool) -> Flow:
    """Let some callers enqueue in bulk."""
    engine = await open_engine(database.store(), services=())
    left = iter(range(0, count, FRAME_SIZE))
    done = 0

    async def call() -> None:
        nonlocal done
        for at in left:
            tasks = tuple(_task(at + n, is_keyed=is_keyed) for n in range(FRAME_SIZE))
            await engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=tasks))
            done += len(tasks)

    watch = Stopwatch()
    await asyncio.gather(*(call() for _ in range(CALLERS)))
    flow = watch.flow(done)
    await engine.stop()
    return flow


def _task(number: int, *, is_keyed: bool) -> NewTask:
    task = new_task()
    return replace(task, idempotency_key=f"schedule:due-{number:06}") if is_keyed else task
