"""What code sees of the schedule that has started it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tenure import Client, Schedule, SyncWorkflowContext, WorkflowContext, activity, workflow
from tenure.testing import TestEngine, open_engine

HOURLY = Schedule(every="1h")
Seen = dict[str, Any]


def seen(info: Any) -> Seen:
    return {"id": info.schedule_id, "at": info.fire_at, "key": info.idempotency_key}


@activity(start_to_close="1m")
async def look() -> Seen:
    return seen(activity.info())


@activity(start_to_close="1m", executor="thread")
def look_in_a_thread() -> Seen:
    return seen(activity.info())


@workflow
async def look_around(ctx: WorkflowContext) -> list[Seen]:
    info = ctx.info
    own = {"id": info.schedule_id, "at": info.fire_at}
    return [own, await ctx.step(look), await ctx.execute(look)]


@workflow
def look_plainly(ctx: SyncWorkflowContext) -> Seen:
    return {"id": ctx.info.schedule_id, "at": ctx.info.fire_at}


async def first_fire(engine: TestEngine, client: Client, target: Any) -> tuple[Any, Any]:
    """Let a schedule fire once; return the fire and what its task or run has seen."""
    await client.schedules.put("hourly", HOURLY, target)
    async with engine.worker([look, look_in_a_thread, look_around, look_plainly]):
        await engine.advance("1h")
        await client.schedules.delete("hourly")
        (fire,) = [each async for each in client.schedules.fires("hourly")]
        return fire, await engine.advance_until(client.handle(fire.task_id).result())


async def test_an_activity_sees_its_schedule_and_its_fire() -> None:
    for target in (look, look_in_a_thread):
        async with open_engine() as engine, engine.client() as client:
            fire, found = await first_fire(engine, client, target)
            assert datetime.fromisoformat(found["at"]) == fire.at
            assert (found["id"], found["key"]) == ("hourly", fire.key)
            described = await client.handle(fire.task_id).describe()
            assert (described.schedule_id, described.fire_at) == ("hourly", fire.at)


async def test_a_run_sees_them_and_so_do_its_local_steps() -> None:
    async with open_engine() as engine, engine.client() as client:
        fire, found = await first_fire(engine, client, look_around)
        own, local, queued = found
        assert (own["id"], datetime.fromisoformat(own["at"])) == ("hourly", fire.at)
        assert (local["id"], datetime.fromisoformat(local["at"])) == ("hourly", fire.at)
        # A queued step is a task of its own, which the run has made.
        assert (queued["id"], queued["at"]) == ("", None)
        described = await client.run_handle(fire.task_id).describe()
        assert (described.schedule_id, described.fire_at) == ("hourly", fire.at)


async def test_a_run_of_a_plain_function_sees_them() -> None:
    async with open_engine() as engine, engine.client() as client:
        fire, found = await first_fire(engine, client, look_plainly)
        assert (found["id"], datetime.fromisoformat(found["at"])) == ("hourly", fire.at)


async def test_what_is_enqueued_by_hand_has_neither() -> None:
    async with open_engine() as engine, engine.client() as client, engine.worker([look]):
        found = await engine.advance_until(client.run(look))
        assert (found["id"], found["at"]) == ("", None)


async def test_a_trigger_and_a_backfill_have_planned_times_too() -> None:
    async with open_engine() as engine, engine.client() as client, engine.worker([look]):
        await client.schedules.put("hourly", HOURLY, look)
        first = datetime(2020, 1, 1, tzinfo=UTC)
        done = await client.schedules.backfill(
            "hourly", first.replace(minute=30), first.replace(hour=1)
        )
        triggered = await client.schedules.trigger("hourly")
        for fire in (*done.started, triggered):
            found = await engine.advance_until(client.handle(fire.task_id).result())
            assert datetime.fromisoformat(found["at"]) == fire.at
            assert found["id"] == "hourly"
        assert done.started[0].at == first.replace(hour=1)
