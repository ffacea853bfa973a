"""Schedules fire at their ticks: one task each, whoever looks, and missed ones by their rules."""

from __future__ import annotations

from typing import Any

from tenure.core.instant import instant_text
from tenure.core.schedule.origin import FireOrigin
from tenure.core.schedule.record import ScheduleState
from tenure.core.task.record import TaskState
from tenure.engine.engine import Engine
from tenure.engine.schedule.command import FireSchedules
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.testing.clock import START_AT_MS
from tests.engine.schedule.schedules import (
    EVERY_MINUTE,
    EVERY_SECOND,
    MINUTE_MS,
    SECOND_MS,
    fired_tasks,
    fires,
    pass_time,
    put,
    run_spec,
    skips,
    spec,
    started,
    stored,
)
from tests.engine.world import DAY_MS, HOUR_MS, World


async def test_each_tick_starts_one_task_that_knows_its_fire(world: World, engine: Engine) -> None:
    await put(engine, spec(input=b"[1]", labels={"team": "a"}))
    await pass_time(world, engine, 3 * MINUTE_MS)
    found = await started(engine)
    assert [each.fire_at_ms - START_AT_MS for each in found] == [60_000, 120_000, 180_000]
    assert [each.lateness_ms for each in found] == [0, 0, 0]
    for fire, task in zip(found, await fired_tasks(world, engine), strict=True):
        assert task.spec.fire == FireOrigin("nightly", fire.fire_at_ms)
        assert task.spec.idempotency_key == fire.key
        assert fire.key == f"schedule:nightly:{instant_text(fire.fire_at_ms)}"
        assert (task.type, task.labels, task.state) == ("mail", {"team": "a"}, TaskState.PENDING)
    assert len(await fires(engine)) == 3


async def test_a_worker_gets_what_a_schedule_has_started(world: World, engine: Engine) -> None:
    await put(engine, spec(input=b"[1]"))
    await pass_time(world, engine, MINUTE_MS)
    worker = await world.worker(engine)
    (task,) = await world.claim(engine, worker)
    assert task.spec.fire == FireOrigin("nightly", START_AT_MS + MINUTE_MS)
    assert task.input == b"[1]"


async def test_a_schedule_starts_runs_with_their_journals(world: World, engine: Engine) -> None:
    await put(engine, run_spec(type="report"))
    await pass_time(world, engine, 2 * MINUTE_MS)
    tasks = await fired_tasks(world, engine)
    assert [task.link is not None and task.link.journal_id is not None for task in tasks] == [
        True,
        True,
    ]
    worker = await world.worker(engine, "report")
    given = await world.claim(engine, worker, types=frozenset({"report"}))
    assert {task.id for task in given} == {task.id for task in tasks}


async def test_another_server_goes_on_where_one_has_died(world: World, engine: Engine) -> None:
    await put(engine, spec())
    await pass_time(world, engine, 2 * MINUTE_MS)
    await world.kill(engine)
    second = await world.start()
    await pass_time(world, second, 2 * MINUTE_MS)
    assert len(await started(second)) == 4
    assert len({each.key for each in await started(second)}) == 4


async def test_two_schedulers_fire_each_tick_once(world: World, engine: Engine) -> None:
    second = await world.start()
    for number in range(20):
        await put(engine, spec(EVERY_SECOND), f"s{number}")
    jobs = ScheduleFiring(), ScheduleFiring()
    for _ in range(5):
        await world.advance(SECOND_MS)
        await world.round(jobs[0], engine)
        await world.round(jobs[1], second)
    for number in range(20):
        assert len(await started(engine, f"s{number}")) == 5
    rows = await world.database.rows("SELECT id FROM tasks")
    assert len(rows) == 100


async def missed(world: World, engine: Engine, ticks: int, **changes: Any) -> None:
    """Let a schedule miss ticks of a second each, then let a scheduler catch up."""
    await put(engine, spec(EVERY_SECOND, **changes))
    await world.advance(ticks * SECOND_MS)
    job = ScheduleFiring()
    for _ in range(30):
        await world.round(job, engine)
        await world.advance(500)


async def test_of_300_missed_ticks_the_newest_100_fire_in_order(
    world: World, engine: Engine
) -> None:
    await missed(world, engine, 300)
    found = await started(engine)
    ticks = [(each.fire_at_ms - START_AT_MS) // SECOND_MS for each in found]
    assert ticks[:100] == list(range(201, 301))
    # What came meanwhile fires behind them.
    assert ticks[100:] == list(range(301, 301 + len(ticks) - 100))
    assert (await skips(engine)) == [("catchup_limit", 200)]
    (skipped,) = [each for each in await fires(engine) if each.reason]
    assert (skipped.fire_at_ms, skipped.until_ms) == (START_AT_MS + 1_000, START_AT_MS + 200_000)


async def test_without_catch_up_only_the_newest_tick_fires(world: World, engine: Engine) -> None:
    await missed(world, engine, 300, max_catchup=0)
    found = await started(engine)
    assert found[0].fire_at_ms == START_AT_MS + 300_000
    assert (await skips(engine)) == [("catchup_limit", 299)]


async def test_a_tick_that_is_late_by_more_than_a_minute_was_missed(
    world: World, engine: Engine
) -> None:
    await put(engine, spec(EVERY_MINUTE, max_catchup=0))
    await world.advance(2 * MINUTE_MS - 1)
    await world.round(ScheduleFiring(), engine)
    assert len(await started(engine)) == 1
    await put(engine, spec(EVERY_SECOND, max_catchup=0, ends_at_ms=START_AT_MS + 150_000), "ended")
    await world.advance(HOUR_MS)
    await world.round(ScheduleFiring(), engine)
    assert await started(engine, "ended") == []
    assert (await stored(engine, "ended")).state is ScheduleState.ENDED


async def test_ticks_before_the_window_are_skipped(world: World, engine: Engine) -> None:
    await missed(world, engine, 300, catchup_window_ms=30_000)
    found = await started(engine)
    assert found[0].fire_at_ms == START_AT_MS + 270_000
    assert (await skips(engine)) == [("catchup_window", 269)]


async def test_a_day_of_a_one_second_rule_fires_within_ten_seconds(
    world: World, engine: Engine
) -> None:
    await put(engine, spec(EVERY_SECOND))
    await world.advance(DAY_MS)
    await world.round(ScheduleFiring(), engine)
    found = await started(engine)
    # Ten in the first look, and at most twenty in a second.
    assert len(found) == 10
    assert found[0].fire_at_ms == START_AT_MS + DAY_MS - 99_000
    (skipped,) = [each for each in await fires(engine) if each.reason]
    assert (skipped.count, skipped.is_count_exact) == (10_000, False)
    await pass_time(world, engine, SECOND_MS - 1)
    assert len(await started(engine)) == 20


async def test_one_round_fires_as_much_as_it_may(world: World, engine: Engine) -> None:
    for number in range(5):
        await put(engine, spec(EVERY_SECOND), f"s{number}")
    await world.advance(4 * SECOND_MS)
    first = await engine.submit(FireSchedules(amount=100, fires_max=6))
    assert (first.fire_count, first.has_more) == (6, True)
    second = await engine.submit(FireSchedules(amount=2, fires_max=100))
    assert (second.count, second.has_more) == (2, True)
    for _ in range(3):
        await world.round(ScheduleFiring(), engine)
        await world.advance(500)
    assert sum([len(await started(engine, f"s{number}")) for number in range(5)]) == 25


async def test_a_tick_starts_its_task_later_by_its_jitter(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_MINUTE, jitter_ms=30_000))
    await pass_time(world, engine, 10 * MINUTE_MS)
    tasks = await fired_tasks(world, engine)
    later = [task.run_at_ms - task.created_at_ms for task in tasks]
    assert all(0 <= each <= 30_000 for each in later)
    assert len(set(later)) > 5


async def test_a_schedule_fires_from_its_start_to_its_end(world: World, engine: Engine) -> None:
    begin, end = START_AT_MS + 3 * MINUTE_MS, START_AT_MS + 5 * MINUTE_MS
    await put(engine, spec(EVERY_MINUTE, starts_at_ms=begin, ends_at_ms=end))
    await pass_time(world, engine, 10 * MINUTE_MS)
    assert [each.fire_at_ms for each in await started(engine)] == [begin, begin + MINUTE_MS, end]
    assert (await stored(engine)).state is ScheduleState.ENDED


async def test_a_clock_that_goes_back_repeats_no_tick(world: World, engine: Engine) -> None:
    await put(engine, spec())
    await pass_time(world, engine, 5 * MINUTE_MS)
    await world.jump(-3 * MINUTE_MS)
    await pass_time(world, engine, 5 * MINUTE_MS)
    found = [each.fire_at_ms - START_AT_MS for each in await started(engine)]
    assert found == [number * MINUTE_MS for number in range(1, 8)]
