"""Commands about schedules, each with what it needs: for tests of what a lost connection does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tenure.core.schedule.record import ScheduleSpec
from tenure.engine.access.command import SetNamespace
from tenure.engine.engine import Engine
from tenure.engine.schedule.command import (
    BackfillSchedule,
    BreakSchedule,
    CreateSchedule,
    DeleteSchedule,
    EndedFire,
    FireSchedules,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    SettleFires,
    TriggerSchedule,
    WakeSchedules,
)
from tenure.errors import NotFound, TenureError
from tests.engine.schedule.schedules import (
    EVERY_MINUTE,
    EVERY_SECOND,
    MINUTE_MS,
    SECOND_MS,
    put,
    run_spec,
    spec,
    started,
)
from tests.engine.world import NAMESPACE, World

Prepare = Callable[[World, Engine], Awaitable[Any]]
NAMED: Final[dict[str, Any]] = {"namespace": NAMESPACE, "schedule_id": "nightly"}
SCHEDULED: Final = "scheduled"
"""The type of what schedules start here: its ids are made by the server, anew in each batch."""


def _content(**changes: Any) -> ScheduleSpec:
    return spec(EVERY_SECOND, type=SCHEDULED, **changes)


async def _create(_world: World, _engine: Engine) -> Any:
    return CreateSchedule(**NAMED, spec=_content())


async def _put(world: World, engine: Engine) -> Any:
    await put(engine, _content())
    await world.advance(3 * SECOND_MS)
    return PutSchedule(**NAMED, spec=spec(EVERY_MINUTE, type=SCHEDULED))


def _named(kind: Any, *, first: Any = None, **fields: Any) -> Prepare:
    async def prepare(world: World, engine: Engine) -> Any:
        await put(engine, _content())
        if first is not None:
            await engine.submit(first(**NAMED))
        await world.advance(3 * SECOND_MS)
        return kind(**NAMED, **fields)

    return prepare


async def _backfill(world: World, engine: Engine) -> Any:
    await put(engine, _content())
    now_ms = world.clock.now_ms()
    await world.advance(3 * SECOND_MS)
    return BackfillSchedule(**NAMED, from_ms=now_ms, to_ms=now_ms + 2 * SECOND_MS)


async def _fire(world: World, engine: Engine) -> Any:
    await put(engine, _content(max_catchup=2))
    await put(engine, run_spec(EVERY_SECOND, type=SCHEDULED), "run")
    await world.advance(5 * SECOND_MS)
    return FireSchedules(amount=10, fires_max=10)


async def _settle(world: World, engine: Engine) -> Any:
    await put(engine, _content())
    await world.advance(SECOND_MS)
    await engine.submit(FireSchedules(amount=10, fires_max=10))
    worker = await world.worker(engine, SCHEDULED)
    (task,) = await world.claim(engine, worker, types=frozenset({SCHEDULED}))
    await world.finish(engine, worker, task)
    (fire,) = await started(engine)
    return SettleFires(items=(EndedFire(NAMESPACE, "nightly", fire.task_id or ""),))


async def _wake(world: World, engine: Engine) -> Any:
    await put(engine, _content())
    await engine.submit(SetNamespace(name=NAMESPACE, is_disabled=True))
    await world.advance(MINUTE_MS)
    await engine.submit(FireSchedules(amount=10, fires_max=10))
    return WakeSchedules(namespace=NAMESPACE, amount=10)


SCHEDULE_CASES: Final[dict[str, tuple[Prepare, type[TenureError] | None]]] = {
    "CreateSchedule": (_create, None),
    "PutSchedule": (_put, None),
    "DeleteSchedule": (_named(DeleteSchedule), NotFound),
    "PauseSchedule": (_named(PauseSchedule, note="month end"), None),
    "ResumeSchedule": (_named(ResumeSchedule, first=PauseSchedule), None),
    "TriggerSchedule": (_named(TriggerSchedule, trigger_id="once"), None),
    "BackfillSchedule": (_backfill, None),
    "FireSchedules": (_fire, None),
    "BreakSchedule": (_named(BreakSchedule, error="bad row"), None),
    "SettleFires": (_settle, None),
    "WakeSchedules": (_wake, None),
}
"""With the refusal that a repetition may get when the first one was committed."""
