"""Reads of schedules and of their fires. The preview of a rule is pure: ``core/schedule``."""

from __future__ import annotations

import msgspec

from tenure.core.filter import ALL_SCHEDULES, ScheduleFilter
from tenure.core.schedule.record import Fire, Schedule
from tenure.engine.read.query import Page, PageRequest
from tenure.store.transaction import Store


class ScheduleView(msgspec.Struct, frozen=True, gc=False):
    """A schedule, its next tick if it has one, and the time at which it was read."""

    schedule: Schedule
    next_at_ms: int | None
    now_ms: int


async def get_schedule(store: Store, *, namespace: str, schedule_id: str) -> ScheduleView:
    """Return a schedule, or raise ``not_found``."""
    raise NotImplementedError


async def list_schedules(
    store: Store, *, namespace: str, page: PageRequest, where: ScheduleFilter = ALL_SCHEDULES
) -> Page[ScheduleView]:
    """Return the schedules of a namespace that match the filter, by id."""
    raise NotImplementedError


async def list_fires(
    store: Store, *, namespace: str, schedule_id: str, page: PageRequest
) -> Page[Fire]:
    """Return the fires of a schedule, the newest first; those of a removed one are kept too."""
    raise NotImplementedError
