"""Overlap policies, the ends of what schedules have started, and failures in a row."""

from __future__ import annotations

import pytest

from tenure.core.schedule.record import FireOutcome, Overlap, ScheduleState
from tenure.core.task.record import Task, TaskState
from tenure.engine.engine import Engine
from tenure.engine.schedule.command import PauseSchedule, ResumeSchedule
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.engine.task.command import FinishKind
from tenure.testing.clock import START_AT_MS
from tests.engine.schedule.schedules import (
    MINUTE_MS,
    fires,
    pass_time,
    put,
    run_spec,
    skips,
    spec,
    started,
    stored,
)
from tests.engine.world import FATAL, NAMESPACE, World


async def begin(world: World, engine: Engine, worker: str, job: ScheduleFiring) -> Task:
    """Let the next tick fire, and a worker take what it started."""
    await pass_time(world, engine, MINUTE_MS, job)
    (task,) = await world.claim(engine, worker)
    await world.confirm(engine, worker, task)
    return task


async def ticks(engine: Engine) -> list[int]:
    return [(each.fire_at_ms - START_AT_MS) // MINUTE_MS for each in await started(engine)]


async def test_a_tick_is_skipped_while_the_last_task_is_live(world: World, engine: Engine) -> None:
    job = ScheduleFiring()
    await put(engine, spec(overlap=Overlap.SKIP))
    worker = await world.worker(engine)
    task = await begin(world, engine, worker, job)
    await pass_time(world, engine, 2 * MINUTE_MS, job)
    assert await ticks(engine) == [1]
    assert await skips(engine) == [("overlap", 1), ("overlap", 1)]
    await world.finish(engine, worker, task)
    await pass_time(world, engine, MINUTE_MS, job)
    assert await ticks(engine) == [1, 4]


async def test_one_tick_waits_for_the_end_of_the_last_task(world: World, engine: Engine) -> None:
    job = ScheduleFiring()
    await put(engine, spec(overlap=Overlap.BUFFER_ONE))
    worker = await world.worker(engine)
    task = await begin(world, engine, worker, job)
    await pass_time(world, engine, 3 * MINUTE_MS, job)
    assert await ticks(engine) == [1]
    # The newest waits; the two before it gave way to it.
    assert await skips(engine) == [("overlap", 1), ("overlap", 1)]
    assert (await stored(engine)).progress.buffered_at_ms == START_AT_MS + 4 * MINUTE_MS
    await world.finish(engine, worker, task)
    await world.round(job, engine)
    assert await ticks(engine) == [1, 4]
    assert (await stored(engine)).progress.buffered_at_ms == 0


async def test_a_tick_cancels_the_task_of_the_one_before(world: World, engine: Engine) -> None:
    job = ScheduleFiring()
    await put(engine, spec(overlap=Overlap.CANCEL_PREVIOUS))
    worker = await world.worker(engine)
    task = await begin(world, engine, worker, job)
    await pass_time(world, engine, MINUTE_MS, job)
    assert await world.state(task.id) is TaskState.CANCELLING
    assert await ticks(engine) == [1]
    await world.finish(engine, worker, task, FinishKind.CANCELLED)
    await world.round(job, engine)
    assert await ticks(engine) == [1, 2]
    assert [each.outcome for each in await started(engine)] == [FireOutcome.CANCELLED, None]


async def test_a_run_that_did_not_begin_gives_way_to_the_next_tick(
    world: World, engine: Engine
) -> None:
    await put(engine, run_spec(overlap=Overlap.CANCEL_PREVIOUS))
    await pass_time(world, engine, 3 * MINUTE_MS)
    await pass_time(world, engine, 6_000)
    states = [await world.state(each.task_id or "") for each in await started(engine)]
    assert states == [TaskState.CANCELLED, TaskState.CANCELLED, TaskState.PENDING]


@pytest.mark.parametrize("policy", [Overlap.BUFFER_ONE, Overlap.CANCEL_PREVIOUS])
async def test_an_end_that_nobody_told_of_is_found_after_five_seconds(
    world: World, engine: Engine, policy: Overlap
) -> None:
    await put(engine, spec(overlap=policy))
    worker = await world.worker(engine)
    task = await begin(world, engine, worker, ScheduleFiring())
    await pass_time(world, engine, MINUTE_MS)
    await world.finish(engine, worker, task, FinishKind.SUCCEEDED)
    # The server that knows of the end dies with it.
    await world.kill(engine)
    second = await world.start()
    await pass_time(world, second, 5_000)
    assert await ticks(second) == [1, 2]
    (first, _) = await started(second)
    assert first.outcome is FireOutcome.SUCCEEDED


async def test_a_fire_shows_how_its_task_has_ended(world: World, engine: Engine) -> None:
    job = ScheduleFiring()
    await put(engine, spec())
    worker = await world.worker(engine)
    for kind in (FinishKind.SUCCEEDED, FinishKind.FAILED):
        task = await begin(world, engine, worker, job)
        await world.finish(engine, worker, task, kind, error=FATAL if "F" in kind.name else None)
        await world.round(job, engine)
    outcomes = [each.outcome for each in await fires(engine)]
    assert outcomes[0] is FireOutcome.SUCCEEDED
    assert FireOutcome.FAILED in outcomes


async def fail(world: World, engine: Engine, worker: str, job: ScheduleFiring) -> None:
    task = await begin(world, engine, worker, job)
    await world.finish(engine, worker, task, FinishKind.FAILED, error=FATAL)
    await world.round(job, engine)


async def test_a_schedule_is_paused_after_failures_in_a_row(world: World, engine: Engine) -> None:
    job = ScheduleFiring()
    await put(engine, spec(pause_after_failures=2))
    worker = await world.worker(engine)
    await fail(world, engine, worker, job)
    task = await begin(world, engine, worker, job)
    await world.finish(engine, worker, task)
    await world.round(job, engine)
    assert (await stored(engine)).progress.failure_count == 0
    await fail(world, engine, worker, job)
    assert (await stored(engine)).state is ScheduleState.ACTIVE
    await fail(world, engine, worker, job)
    paused = await stored(engine)
    assert paused.state is ScheduleState.PAUSED
    assert paused.progress.pause_note == "Paused after 2 failures in a row."
    resumed = await engine.submit(ResumeSchedule(namespace=NAMESPACE, schedule_id="nightly"))
    assert resumed.progress.failure_count == 0


async def test_a_tick_that_waits_stays_through_a_pause(world: World, engine: Engine) -> None:
    job = ScheduleFiring()
    await put(engine, spec(overlap=Overlap.BUFFER_ONE))
    worker = await world.worker(engine)
    task = await begin(world, engine, worker, job)
    await pass_time(world, engine, MINUTE_MS, job)
    await engine.submit(PauseSchedule(namespace=NAMESPACE, schedule_id="nightly"))
    await world.finish(engine, worker, task)
    await world.round(job, engine)
    assert await ticks(engine) == [1]
    await engine.submit(ResumeSchedule(namespace=NAMESPACE, schedule_id="nightly"))
    await pass_time(world, engine, 5_000, job)
    assert await ticks(engine) == [1, 2]


async def test_an_end_that_is_settled_twice_counts_once(world: World, engine: Engine) -> None:
    first, second = ScheduleFiring(), ScheduleFiring()
    other = await world.start()
    await put(engine, spec())
    worker = await world.worker(engine)
    task = await begin(world, engine, worker, first)
    await world.finish(engine, worker, task, FinishKind.FAILED, error=FATAL)
    await world.round(second, other)
    await world.round(first, engine)
    assert (await stored(engine)).progress.failure_count == 1
