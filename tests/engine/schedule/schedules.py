"""Schedules of tests, and how time passes for them: a round at each instant that one is due."""

from __future__ import annotations

from typing import Any, Final

from tenure.core.schedule.record import Fire, FireKind, Rule, Schedule, ScheduleSpec, Target
from tenure.core.task.record import Spec, Task
from tenure.engine.engine import Engine
from tenure.engine.read import schedule as schedule_read
from tenure.engine.read.query import PageRequest
from tenure.engine.schedule.command import PutSchedule
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.store.table import schedule as schedule_table
from tests.engine.world import CURSOR_KEY, NAMESPACE, QUEUE, RUN_SPEC, SPEC, World

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
EVERY_SECOND: Final = Rule(every_ms=SECOND_MS)
EVERY_MINUTE: Final = Rule(cron="* * * * *")


def spec(rule: Rule = EVERY_MINUTE, *, task: Spec = SPEC, **changes: Any) -> ScheduleSpec:
    fields = ("external_id", "on_live", "input", "labels", "type")
    about = {name: changes.pop(name) for name in fields if name in changes}
    target = Target(**{"type": "mail", "queue": QUEUE, "spec": task, **about})
    return ScheduleSpec(rule=rule, target=target, **changes)


def run_spec(rule: Rule = EVERY_MINUTE, **changes: Any) -> ScheduleSpec:
    return spec(rule, task=RUN_SPEC, **changes)


async def put(engine: Engine, content: ScheduleSpec, schedule_id: str = "nightly") -> Schedule:
    command = PutSchedule(namespace=NAMESPACE, schedule_id=schedule_id, spec=content)
    return (await engine.submit(command)).schedule


async def stored(engine: Engine, schedule_id: str = "nightly") -> Schedule:
    found = await schedule_read.get_schedule(
        engine.store, namespace=NAMESPACE, schedule_id=schedule_id
    )
    return found.schedule


async def fires(engine: Engine, schedule_id: str = "nightly") -> list[Fire]:
    """Return all fires, the oldest first."""
    found: list[Fire] = []
    token = ""
    while True:
        page = await schedule_read.list_fires(
            engine.store,
            namespace=NAMESPACE,
            schedule_id=schedule_id,
            page=PageRequest(cursor_key=CURSOR_KEY, size=100, token=token),
        )
        found += page.items
        token = page.next_page_token
        if not token:
            return found[::-1]


async def started(engine: Engine, schedule_id: str = "nightly") -> list[Fire]:
    return [each for each in await fires(engine, schedule_id) if each.kind is not FireKind.SKIPPED]


async def skips(engine: Engine, schedule_id: str = "nightly") -> list[tuple[str, int]]:
    """Return the reasons and counts of skipped ranges."""
    found = await fires(engine, schedule_id)
    return [(each.reason.value, each.count) for each in found if each.reason is not None]


async def next_due_ms(engine: Engine) -> int | None:
    return await engine.store.read(schedule_table.next_due_ms)


async def pass_time(
    world: World, engine: Engine, ms: int, job: ScheduleFiring | None = None
) -> None:
    """Let time pass, with a round of the scheduler whenever a schedule is due."""
    job = job or ScheduleFiring()
    end_ms = world.clock.now_ms() + ms
    while True:
        due_ms = await next_due_ms(engine)
        if due_ms is None or due_ms > end_ms:
            break
        await world.advance(max(0, due_ms - world.clock.now_ms()))
        await world.round(job, engine)
    await world.advance(end_ms - world.clock.now_ms())


async def fired_tasks(world: World, engine: Engine, schedule_id: str = "nightly") -> list[Task]:
    found = await started(engine, schedule_id)
    return [await world.task(each.task_id or "", engine) for each in found]
