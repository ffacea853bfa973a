"""Schedules in tests: ``advance`` fires them at their instants, for workers that run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from tenure import WorkflowContext, activity, workflow
from tenure.core.schedule.record import Overlap, Rule, ScheduleSpec, Target
from tenure.core.task.record import Spec, TaskKind
from tenure.engine.schedule.command import PutSchedule
from tenure.testing import TestEngine, open_engine

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
seen: list[tuple[str, datetime | None]] = []


@activity(start_to_close="30s")
async def report() -> None:
    info = activity.info()
    seen.append((info.schedule_id, info.fire_at))


@workflow
async def digest(ctx: WorkflowContext) -> None:
    seen.append((ctx.info.schedule_id, ctx.info.fire_at))
    await ctx.sleep("25m")


async def put(engine: TestEngine, schedule_id: str, spec: ScheduleSpec) -> None:
    """Store a schedule by the engine itself; what clients have for it is tested with them."""
    stage = engine._stage  # noqa: SLF001 (the server behind the engine of tests)
    server = stage._engine  # noqa: SLF001
    assert server is not None
    command = PutSchedule(namespace="default/default", schedule_id=schedule_id, spec=spec)

    async def submit() -> None:
        await server.submit(command)

    await asyncio.wrap_future(stage.call(submit()))


def target(name: str, spec: Spec) -> Target:
    return Target(type=name, queue="default", spec=spec, input=b"{}")


async def test_three_days_have_three_nights() -> None:
    seen.clear()
    nightly = ScheduleSpec(
        rule=Rule(cron="30 2 * * *"), target=target("report", Spec(start_to_close_ms=30_000))
    )
    async with open_engine(start_at=BEGIN) as engine, engine.worker([report]):
        await put(engine, "nightly", nightly)
        await engine.advance("3d")
    first = BEGIN + timedelta(hours=2, minutes=30)
    assert seen == [("nightly", first + timedelta(days=number)) for number in range(3)]


async def test_a_tick_waits_for_the_run_of_the_one_before() -> None:
    seen.clear()
    often = ScheduleSpec(
        rule=Rule(every_ms=20 * 60_000),
        target=target("digest", Spec(kind=TaskKind.WORKFLOW)),
        overlap=Overlap.BUFFER_ONE,
    )
    async with open_engine(start_at=BEGIN) as engine, engine.worker([digest]):
        await put(engine, "often", often)
        await engine.advance("110m")
    # A body runs again from its top when it is woken.
    at = {(fire_at - BEGIN).seconds // 60 for _, fire_at in seen if fire_at is not None}
    assert at == {20, 40, 60, 80}
