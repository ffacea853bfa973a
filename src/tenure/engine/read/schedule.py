"""Reads of schedules and of their fires. The preview of a rule is pure: ``core/schedule``."""

from __future__ import annotations

import msgspec

from tenure.core import check
from tenure.core.filter import ALL_SCHEDULES, ScheduleFilter, query_text
from tenure.core.schedule.record import Fire, Schedule
from tenure.core.schedule.timing import next_tick_ms
from tenure.engine.read.query import (
    Page,
    PageRequest,
    Read,
    check_exists,
    page_of,
    place_of,
    read,
    scan,
)
from tenure.errors import NotFound
from tenure.store.table import fire as fire_table
from tenure.store.table import schedule as schedule_table
from tenure.store.table import schedule_list
from tenure.store.transaction import Store, Tx

_PAUSED = {None: "", True: "yes", False: "no"}


class ScheduleView(msgspec.Struct, frozen=True, gc=False):
    """A schedule, its next tick if it has one, and the time at which it was read."""

    schedule: Schedule
    next_at_ms: int | None
    now_ms: int


def view_of(schedule: Schedule, now_ms: int) -> ScheduleView:
    """Return what is shown of a schedule at an instant."""
    return ScheduleView(schedule, next_tick_ms(schedule, now_ms), now_ms)


async def get_schedule(store: Store, *, namespace: str, schedule_id: str) -> ScheduleView:
    """Return a schedule, or raise ``not_found``."""
    key = (check.namespace(namespace), check.name(schedule_id, "scheduleId"))

    async def body(tx: Tx) -> ScheduleView:
        found = await schedule_table.read_schedules(tx, [key])
        if not found:
            raise _not_found(schedule_id)
        return view_of(found[0], await tx.now_ms())

    return await read(store, body)


async def list_schedules(
    store: Store, *, namespace: str, page: PageRequest, where: ScheduleFilter = ALL_SCHEDULES
) -> Page[ScheduleView]:
    """Return the schedules of a namespace that match the filter, by id."""
    namespace = check.namespace(namespace)
    place = place_of(namespace, query_text("schedules", where.checked()), page, first="")

    async def body(tx: Tx) -> Read[ScheduleView]:
        await check_exists(tx, namespace)
        given = (namespace, where.type, _PAUSED[where.is_paused])
        ids, end_id = await schedule_list.find_schedules(tx, given, place.part)
        found = await schedule_table.read_schedules(tx, [(namespace, each) for each in ids])
        now_ms = await tx.now_ms()
        total = None
        if page.wants_total:
            total = await schedule_list.count_schedules(tx, given)
        by_id = {each.id: view_of(each, now_ms) for each in found}
        return Read([by_id[each] for each in ids if each in by_id], total, end_id)

    return page_of(await scan(store, body), place, lambda view: view.schedule.id)


async def list_fires(
    store: Store, *, namespace: str, schedule_id: str, page: PageRequest
) -> Page[Fire]:
    """Return the fires of a schedule, the newest first; those of a removed one are kept too."""
    key = (check.namespace(namespace), check.name(schedule_id, "scheduleId"))
    place = place_of(key[0], f"fires {key[1]}", page)

    async def body(tx: Tx) -> Read[Fire]:
        part = place.part
        found = await fire_table.list_fires(tx, key, before_id=part.position, amount=part.amount)
        if not found and not page.token and not await schedule_table.read_schedules(tx, [key]):
            raise _not_found(schedule_id)
        return Read(found)

    return page_of(await scan(store, body), place, lambda fire: fire.id)


def _not_found(schedule_id: str) -> NotFound:
    return NotFound(f"Schedule {schedule_id} was not found.")
