"""What clients do to schedules: each is repeatable, and nothing is lost or doubled by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.limits import BACKFILL_TICKS_MAX, SCHEDULES_MAX
from tenure.core.run.external_id import OnLive
from tenure.core.schedule.record import FireKind, Overlap, ResumeMode, Rule, ScheduleState
from tenure.core.task.record import TaskState
from tenure.engine.access.command import SetNamespace
from tenure.engine.engine import Engine
from tenure.engine.schedule.command import (
    BackfillSchedule,
    CreateSchedule,
    DeleteSchedule,
    FireSchedules,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.errors import AlreadyExists, InvalidArgument, NotFound, RateLimited, WrongState
from tenure.testing.clock import START_AT_MS
from tests.engine.schedule.schedules import (
    EVERY_MINUTE,
    EVERY_SECOND,
    MINUTE_MS,
    SECOND_MS,
    fires,
    pass_time,
    put,
    run_spec,
    skips,
    spec,
    started,
    stored,
)
from tests.engine.world import HOUR_MS, NAMESPACE, OTHER_NAMESPACE, World

NAMED: Any = {"namespace": NAMESPACE, "schedule_id": "nightly"}
HOURLY = Rule(cron="0 * * * *")


async def test_a_create_with_the_same_content_is_not_new(world: World, engine: Engine) -> None:
    command = CreateSchedule(**NAMED, spec=spec(labels={}))
    first = await engine.submit(command)
    again = await engine.submit(command)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.schedule == first.schedule
    with pytest.raises(AlreadyExists, match="other content"):
        await engine.submit(CreateSchedule(**NAMED, spec=spec(HOURLY)))
    assert len(await world.database.rows("SELECT * FROM schedules")) == 1


async def test_a_schedule_without_an_id_gets_one(engine: Engine) -> None:
    made = await engine.submit(CreateSchedule(namespace=NAMESPACE, spec=spec()))
    assert (await stored(engine, made.schedule.id)).spec == spec()


async def test_a_new_rule_counts_from_now(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_SECOND))
    await world.advance(10 * SECOND_MS)
    changed = await put(engine, spec(EVERY_MINUTE))
    assert changed.progress.fired_until_ms == world.clock.now_ms()
    # Nobody has looked at the ticks of the old rule.
    assert await skips(engine) == [("replaced", 10)]
    await pass_time(world, engine, MINUTE_MS)
    assert [each.fire_at_ms for each in await started(engine)] == [START_AT_MS + MINUTE_MS]


async def test_the_mark_never_goes_back(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_MINUTE))
    await pass_time(world, engine, 5 * MINUTE_MS)
    await world.jump(-3 * MINUTE_MS)
    changed = await put(engine, spec(Rule(every_ms=30_000)))
    assert changed.progress.fired_until_ms == START_AT_MS + 5 * MINUTE_MS


async def test_another_target_changes_no_tick(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_SECOND))
    await world.advance(5 * SECOND_MS)
    await put(engine, spec(EVERY_SECOND, type="other"))
    await world.round(ScheduleFiring(), engine)
    found = await started(engine)
    assert len(found) == 5
    assert (await world.task(found[0].task_id or "")).type == "other"
    assert await skips(engine) == []


async def test_a_put_with_the_same_content_changes_nothing(world: World, engine: Engine) -> None:
    first = await put(engine, spec())
    await world.advance(SECOND_MS)
    assert await put(engine, spec()) == first


async def test_a_rule_that_never_fires_again_is_refused(engine: Engine) -> None:
    for content in (
        spec(Rule(cron="0 0 0 1 1 * 2025")),
        spec(EVERY_MINUTE, ends_at_ms=START_AT_MS - 1),
    ):
        with pytest.raises(InvalidArgument) as caught:
            await put(engine, content)
        assert caught.value.fields["field"] == "rule"


async def test_after_a_pause_nothing_fires_on_any_server(world: World, engine: Engine) -> None:
    second = await world.start()
    await put(engine, spec(EVERY_SECOND))
    await pass_time(world, engine, 3 * SECOND_MS)
    paused = await engine.submit(PauseSchedule(**NAMED, note="month end"))
    assert (paused.state, paused.progress.pause_note) == (ScheduleState.PAUSED, "month end")
    await world.advance(10 * SECOND_MS)
    for each in (engine, second):
        await world.round(ScheduleFiring(), each)
    assert len(await started(engine)) == 3


async def test_a_pause_is_seen_by_a_round_of_the_same_batch(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_SECOND))
    await world.advance(SECOND_MS)
    paused = engine.submit(PauseSchedule(**NAMED))
    fired = engine.submit(FireSchedules(amount=10, fires_max=10))
    assert (await paused).is_paused
    assert (await fired).fire_count == 0


async def test_a_resumed_schedule_catches_up(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_MINUTE, max_catchup=3))
    await engine.submit(PauseSchedule(**NAMED))
    await world.advance(10 * MINUTE_MS)
    await engine.submit(ResumeSchedule(**NAMED))
    await pass_time(world, engine, SECOND_MS)
    assert len(await started(engine)) == 3
    assert await skips(engine) == [("catchup_limit", 7)]


async def test_a_schedule_can_be_resumed_without_what_was_missed(
    world: World, engine: Engine
) -> None:
    await put(engine, spec(EVERY_MINUTE))
    await engine.submit(PauseSchedule(**NAMED))
    await world.advance(10 * MINUTE_MS)
    await engine.submit(ResumeSchedule(**NAMED, mode=ResumeMode.SKIP))
    await pass_time(world, engine, MINUTE_MS)
    assert [each.fire_at_ms for each in await started(engine)] == [START_AT_MS + 11 * MINUTE_MS]
    assert await skips(engine) == [("paused", 10)]


async def test_a_paused_schedule_stays_paused_when_it_is_put(world: World, engine: Engine) -> None:
    await put(engine, spec())
    await engine.submit(PauseSchedule(**NAMED))
    assert (await put(engine, spec(HOURLY))).is_paused
    await world.advance(HOUR_MS)
    await world.round(ScheduleFiring(), engine)
    assert await started(engine) == []


async def test_a_trigger_with_an_id_starts_one_task(world: World, engine: Engine) -> None:
    await put(engine, spec(HOURLY))
    await engine.submit(PauseSchedule(**NAMED))
    command = TriggerSchedule(**NAMED, trigger_id="by-hand")
    first, second = engine.submit(command), engine.submit(command)
    assert (await first).is_new
    assert not (await second).is_new
    await world.advance(MINUTE_MS)
    again = await engine.submit(command)
    assert again.fire == (await first).fire
    assert (await engine.submit(TriggerSchedule(**NAMED))).is_new
    assert [each.kind for each in await fires(engine)] == [FireKind.TRIGGER] * 2
    task = await world.task((await first).fire.task_id or "")
    assert task.spec.idempotency_key == "schedule:nightly/trigger/by-hand"


async def test_a_backfill_starts_what_has_not_fired(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_MINUTE, max_catchup=2))
    await world.advance(10 * MINUTE_MS)
    await pass_time(world, engine, SECOND_MS)
    assert len(await started(engine)) == 2
    command = BackfillSchedule(
        **NAMED, from_ms=START_AT_MS + 6 * MINUTE_MS, to_ms=START_AT_MS + 10 * MINUTE_MS
    )
    done = await engine.submit(command)
    at = [each.fire_at_ms - START_AT_MS for each in done.started]
    assert at == [7 * MINUTE_MS, 8 * MINUTE_MS]
    assert len(done.known_keys) == 2
    again = await engine.submit(command)
    assert (again.started, len(again.known_keys)) == ((), 4)
    assert len(await started(engine)) == 4


async def test_a_tick_that_was_backfilled_does_not_fire_again(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_MINUTE))
    await engine.submit(PauseSchedule(**NAMED))
    await world.advance(5 * MINUTE_MS)
    await engine.submit(
        BackfillSchedule(**NAMED, from_ms=START_AT_MS, to_ms=START_AT_MS + 3 * MINUTE_MS)
    )
    await engine.submit(ResumeSchedule(**NAMED))
    await pass_time(world, engine, SECOND_MS)
    kinds = [each.kind for each in await started(engine)]
    assert kinds == [FireKind.BACKFILL] * 3 + [FireKind.TICK] * 2


async def test_a_look_searches_for_fired_ticks_only_where_a_backfill_was_ahead(
    world: World, engine: Engine
) -> None:
    await put(engine, spec(EVERY_MINUTE))
    await world.advance(5 * MINUTE_MS)
    world.faults.points.clear()
    await pass_time(world, engine, SECOND_MS)
    assert "find_ticks" not in world.faults.points
    await engine.submit(PauseSchedule(**NAMED))
    await world.advance(3 * MINUTE_MS)
    to_ms = START_AT_MS + 7 * MINUTE_MS
    # Behind the mark there is nothing that a look could fire.
    await engine.submit(BackfillSchedule(**NAMED, from_ms=START_AT_MS, to_ms=to_ms - 3 * MINUTE_MS))
    assert (await stored(engine)).progress.ahead_until_ms == 0
    await engine.submit(BackfillSchedule(**NAMED, from_ms=START_AT_MS, to_ms=to_ms))
    assert (await stored(engine)).progress.ahead_until_ms == to_ms
    await engine.submit(ResumeSchedule(**NAMED))
    for is_ahead in (True, False):
        world.faults.points.clear()
        await pass_time(world, engine, MINUTE_MS)
        assert ("find_ticks" in world.faults.points) == is_ahead
    at = [each.fire_at_ms for each in await started(engine)]
    assert len(at) == len(set(at)) == 10


async def test_a_tick_of_a_removed_schedule_does_not_fire_again_when_the_clock_was_set_back(
    world: World, engine: Engine
) -> None:
    await put(engine, spec(EVERY_MINUTE))
    await pass_time(world, engine, 5 * MINUTE_MS)
    assert len(await started(engine)) == 5
    await engine.submit(DeleteSchedule(**NAMED))
    await world.jump(-3 * MINUTE_MS)
    made = await put(engine, spec(EVERY_MINUTE))
    assert made.progress.ahead_until_ms == START_AT_MS + 5 * MINUTE_MS
    await pass_time(world, engine, 5 * MINUTE_MS)
    assert [each.kind for each in await started(engine)] == [FireKind.TICK] * 7


async def test_a_batch_that_removes_and_creates_a_schedule_knows_what_has_fired(
    world: World, engine: Engine
) -> None:
    await put(engine, spec(EVERY_MINUTE))
    await pass_time(world, engine, 5 * MINUTE_MS)
    await world.jump(-3 * MINUTE_MS)
    create = CreateSchedule(**NAMED, spec=spec(EVERY_MINUTE))
    await asyncio.gather(engine.submit(DeleteSchedule(**NAMED)), engine.submit(create))
    assert (await stored(engine)).progress.ahead_until_ms == START_AT_MS + 5 * MINUTE_MS
    await pass_time(world, engine, 5 * MINUTE_MS)
    assert [each.kind for each in await started(engine)] == [FireKind.TICK] * 7


async def test_a_backfill_has_a_limit_and_ends_now(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_SECOND))
    await world.advance(HOUR_MS)
    now_ms = world.clock.now_ms()
    for to_ms in (now_ms, now_ms + 1):
        with pytest.raises(InvalidArgument) as caught:
            await engine.submit(BackfillSchedule(**NAMED, from_ms=START_AT_MS, to_ms=to_ms))
        assert caught.value.fields["field"] == "to"
    most = START_AT_MS + BACKFILL_TICKS_MAX * SECOND_MS
    done = await engine.submit(BackfillSchedule(**NAMED, from_ms=START_AT_MS, to_ms=most))
    assert len(done.started) == BACKFILL_TICKS_MAX


async def test_what_a_removed_schedule_has_started_goes_on(world: World, engine: Engine) -> None:
    await put(engine, spec())
    await pass_time(world, engine, MINUTE_MS)
    removed = await engine.submit(DeleteSchedule(**NAMED))
    assert removed.id == "nightly"
    await pass_time(world, engine, 2 * MINUTE_MS)
    (fire,) = await fires(engine)
    assert await world.state(fire.task_id or "") is TaskState.PENDING
    with pytest.raises(NotFound):
        await stored(engine)
    with pytest.raises(NotFound):
        await engine.submit(DeleteSchedule(**NAMED))


async def test_the_fires_of_a_removed_schedule_are_settled(world: World, engine: Engine) -> None:
    job = ScheduleFiring()
    await put(engine, spec())
    worker = await world.worker(engine)
    await pass_time(world, engine, MINUTE_MS, job)
    (task,) = await world.claim(engine, worker)
    await engine.submit(DeleteSchedule(**NAMED))
    await world.finish(engine, worker, task)
    await world.round(job, engine)
    assert [each.outcome for each in await fires(engine)] == ["succeeded"]


async def test_a_schedule_that_is_made_again_repeats_no_fire(world: World, engine: Engine) -> None:
    await put(engine, spec())
    await pass_time(world, engine, 3 * MINUTE_MS)
    await engine.submit(DeleteSchedule(**NAMED))
    await world.jump(-2 * MINUTE_MS)
    await put(engine, spec())
    await pass_time(world, engine, 3 * MINUTE_MS)
    at = [(each.fire_at_ms - START_AT_MS) // MINUTE_MS for each in await started(engine)]
    assert at == [1, 2, 3, 4]


async def test_a_disabled_namespace_fires_nothing_and_catches_up(
    world: World, engine: Engine
) -> None:
    job = ScheduleFiring()
    await put(engine, spec(EVERY_SECOND, max_catchup=2))
    await engine.submit(SetNamespace(name=NAMESPACE, is_disabled=True))
    await pass_time(world, engine, 10 * SECOND_MS, job)
    assert await started(engine) == []
    with pytest.raises(WrongState):
        await engine.submit(TriggerSchedule(**NAMED))
    await engine.submit(SetNamespace(name=NAMESPACE, is_disabled=False))
    await world.round(job, engine)
    assert [each.fire_at_ms - START_AT_MS for each in await started(engine)] == [9_000, 10_000]
    assert await skips(engine) == [("disabled", 8)]


async def test_a_full_namespace_takes_no_more_schedules(world: World, engine: Engine) -> None:
    await put(engine, spec())
    await world.database.execute(f"UPDATE schedule_counts SET count = {SCHEDULES_MAX}")
    with pytest.raises(RateLimited):
        await put(engine, spec(), "one-more")
    await put(engine, spec(HOURLY))
    await engine.submit(DeleteSchedule(**NAMED))
    await put(engine, spec(), "one-more")


async def test_namespaces_do_not_see_each_other(engine: Engine) -> None:
    await put(engine, spec())
    for command in (PauseSchedule, ResumeSchedule, TriggerSchedule, DeleteSchedule):
        with pytest.raises(NotFound):
            await engine.submit(command(namespace=OTHER_NAMESPACE, schedule_id="nightly"))


async def test_changes_are_in_the_audit_log(world: World, engine: Engine) -> None:
    await put(engine, spec())
    await engine.submit(PauseSchedule(**NAMED, note="audit", actor="k1"))
    await engine.submit(PauseSchedule(**NAMED, note="audit", actor="k1"))
    await engine.submit(ResumeSchedule(**NAMED))
    await engine.submit(TriggerSchedule(**NAMED))
    await engine.submit(DeleteSchedule(**NAMED))
    rows = await world.database.rows("SELECT action, actor, target FROM audit ORDER BY id")
    assert [row["action"] for row in rows] == [
        f"schedule.{each}" for each in ("put", "pause", "resume", "trigger", "delete")
    ]
    assert (rows[1]["actor"], rows[1]["target"]) == ("k1", "nightly")


async def test_a_live_run_with_the_external_id_is_the_run_of_a_tick(
    world: World, engine: Engine
) -> None:
    await put(engine, run_spec(external_id="sync"))
    await put(engine, run_spec(external_id="sync", on_live=OnLive.REJECT), "strict")
    await pass_time(world, engine, 2 * MINUTE_MS)
    runs = await world.database.rows("SELECT id FROM tasks")
    assert len(runs) == 1
    assert len(await started(engine)) + len(await started(engine, "strict")) >= 2
    assert ("external_id", 1) in await skips(engine, "strict")
    with pytest.raises(AlreadyExists):
        await engine.submit(TriggerSchedule(namespace=NAMESPACE, schedule_id="strict"))


async def test_a_trigger_and_a_tick_that_overlap_both_run(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_MINUTE, overlap=Overlap.SKIP))
    await engine.submit(TriggerSchedule(**NAMED))
    await pass_time(world, engine, MINUTE_MS)
    assert len(await started(engine)) == 2
