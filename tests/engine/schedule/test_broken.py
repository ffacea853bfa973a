"""One broken schedule never stops the others, and says what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.core.schedule import decide as schedule_rules
from tenure.core.schedule.event import Looked
from tenure.core.schedule.record import ScheduleState
from tenure.engine.engine import Engine
from tenure.engine.read.diagnosis import Question, diagnose
from tenure.engine.schedule.command import ResumeSchedule
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.store.failure import Refused, RuleBroken
from tests.engine.schedule.schedules import (
    EVERY_SECOND,
    MINUTE_MS,
    SECOND_MS,
    pass_time,
    put,
    spec,
    started,
    stored,
)
from tests.engine.world import NAMESPACE, World

NAMES = [f"s{number}" for number in range(8)]
# The check of a table that this schedule alone violates.
SQLITE_TRIGGER = """
CREATE TRIGGER refuse BEFORE INSERT ON fires WHEN NEW.schedule_id = 's3'
BEGIN SELECT RAISE(ABORT, 'constraint failed'); END
"""
POSTGRES_CHECK = "ALTER TABLE fires ADD CONSTRAINT refuse CHECK (schedule_id <> 's3') NOT VALID"
POSTGRES_DROP = "ALTER TABLE fires DROP CONSTRAINT refuse"


async def put_all(world: World, engine: Engine) -> None:
    for name in NAMES:
        await put(engine, spec(EVERY_SECOND), name)
    await world.advance(SECOND_MS)


async def fired(engine: Engine) -> list[str]:
    return [name for name in NAMES if await started(engine, name)]


async def test_a_row_that_the_database_refuses_is_found_by_halves(
    world: World, engine: Engine
) -> None:
    await put_all(world, engine)
    is_sqlite = world.dialect == "sqlite"
    await world.database.execute(SQLITE_TRIGGER if is_sqlite else POSTGRES_CHECK)
    try:
        await world.round(ScheduleFiring(), engine)
        assert await fired(engine) == [name for name in NAMES if name != "s3"]
        broken = await stored(engine, "s3")
        assert broken.state is ScheduleState.BROKEN
        assert broken.progress.error
        await world.advance(SECOND_MS)
        await world.round(ScheduleFiring(), engine)
        assert len(await started(engine, "s0")) == 2
        # No task without its fire.
        assert len(await world.database.rows("SELECT id FROM tasks")) == 14
    finally:
        await world.database.execute("DROP TRIGGER refuse" if is_sqlite else POSTGRES_DROP)
    await engine.submit(ResumeSchedule(namespace=NAMESPACE, schedule_id="s3"))
    await pass_time(world, engine, SECOND_MS)
    assert (await stored(engine, "s3")).state is ScheduleState.ACTIVE
    assert len(await started(engine, "s3")) == 3


@pytest.mark.parametrize("error", [Refused("bad data"), RuleBroken("bad row")])
async def test_a_refusal_that_does_not_come_again_breaks_nothing(
    world: World, engine: Engine, error: Exception
) -> None:
    await put_all(world, engine)
    world.faults.raise_at("insert_fires", error, error)
    await world.round(ScheduleFiring(), engine)
    assert await fired(engine) == NAMES


async def spoil(world: World, name: str, **changes: Any) -> None:
    """Change what is stored of a schedule, as a newer server might."""
    row = (await world.database.rows(f"SELECT spec FROM schedules WHERE id = '{name}'"))[0]
    content = msgspec.msgpack.decode(bytes(row["spec"])) | changes
    data = msgspec.msgpack.encode(content).hex()
    value = f"x'{data}'" if world.dialect == "sqlite" else f"decode('{data}', 'hex')"
    await world.database.execute(f"UPDATE schedules SET spec = {value} WHERE id = '{name}'")


@pytest.mark.parametrize(
    "changes",
    [{"r": {"c": "* * * * *", "z": "Atlantis/Gone"}}, {"r": {"c": "0 15W * *"}}, {"o": "newer"}],
)
async def test_a_schedule_that_cannot_be_evaluated_is_broken(
    world: World, engine: Engine, changes: dict[str, Any]
) -> None:
    await put_all(world, engine)
    await spoil(world, "s3", **changes)
    await world.round(ScheduleFiring(), engine)
    assert await fired(engine) == [name for name in NAMES if name != "s3"]
    broken = await stored(engine, "s3")
    assert (broken.state, broken.due_at_ms) == (ScheduleState.BROKEN, None)
    assert broken.progress.error
    repaired = await put(engine, spec(EVERY_SECOND), "s3")
    assert repaired.state is ScheduleState.ACTIVE
    await pass_time(world, engine, SECOND_MS)
    assert len(await started(engine, "s3")) == 1


async def test_a_bug_of_one_schedule_stops_no_other(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_all(world, engine)
    decide = schedule_rules.decide

    def fail(schedule: Any, event: Any, now_ms: int) -> Any:
        if schedule.id == "s3" and isinstance(event, Looked):
            raise OverflowError("too far")
        return decide(schedule, event, now_ms)

    monkeypatch.setattr(schedule_rules, "decide", fail)
    await world.round(ScheduleFiring(), engine)
    assert await fired(engine) == [name for name in NAMES if name != "s3"]
    assert (await stored(engine, "s3")).progress.error == "OverflowError: too far"


async def test_doctor_names_late_broken_and_failing_schedules(world: World, engine: Engine) -> None:
    await put(engine, spec(), "late")
    await put(engine, spec(EVERY_SECOND), "broken")
    await put(engine, spec(), "failing")
    await spoil(world, "broken", r={"c": "* * * * *", "z": "Atlantis/Gone"})
    await world.advance(SECOND_MS)
    await world.round(ScheduleFiring(), engine)
    await world.database.execute("UPDATE schedules SET failure_count = 5 WHERE id = 'failing'")
    await world.advance(3 * MINUTE_MS)
    found = await diagnose(engine, Question(version="1", namespace=NAMESPACE))
    said = {each.check: each.message for each in found.findings}
    assert said["late_schedules"] == (
        f"2 schedules in {NAMESPACE} are late, the first by 2m"
    ) or said["late_schedules"].startswith("2 schedules")
    assert said["broken_schedules"].startswith(f"Schedule broken in {NAMESPACE} is broken: ")
    assert "has failed 5 times in a row" in said["failing_schedules"]


async def test_a_round_that_failed_is_tried_again_soon(world: World, engine: Engine) -> None:
    await put_all(world, engine)
    job = ScheduleFiring()
    world.faults.raise_at("load_due_schedules", ValueError("a bug"))
    await job.run_once(engine)
    assert await fired(engine) == NAMES
