"""The operations on schedules."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any, Final

from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped, ScopedPageQuery
from tenure.api.http.route.schedule import body as b
from tenure.api.http.route.schedule import view
from tenure.api.http.route.schedule.parameter import NextQuery, ScheduleListQuery
from tenure.api.http.view import page_fields
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.core.schedule.plan import plan_of
from tenure.engine.read import schedule as schedule_read
from tenure.engine.schedule import command as c

_SCHEDULE: Final = "/v1/schedules/{scheduleId}"
_ID: Final = "scheduleId"


async def create_schedule(call: OperationCall[Scoped, b.ScheduleBody]) -> Answer:
    """Create a schedule."""
    command = c.CreateSchedule(
        namespace=call.namespace,
        schedule_id=call.body.schedule_id,
        spec=call.body.spec(),
        actor=call.principal.key_id,
    )
    return await _store(call, command)


async def put_schedule(call: OperationCall[Scoped, b.ContentBody]) -> Answer:
    """Create a schedule, or replace what it says."""
    command = c.PutSchedule(
        namespace=call.namespace,
        schedule_id=call.path[_ID],
        spec=call.body.spec(),
        actor=call.principal.key_id,
    )
    return await _store(call, command)


async def _store(
    call: OperationCall[Scoped, Any], command: c.CreateSchedule | c.PutSchedule
) -> Answer:
    # It is stored like a task is.
    call.context.allowance.enqueues.take(call.namespace)
    answer = await call.engine.submit(command)
    shown = view.stored(answer, schedule_read.view_of(answer.schedule, call.engine.clock.now_ms()))
    return Answer(shown, _created(is_new=answer.is_new))


def _created(*, is_new: bool) -> int:
    return HTTPStatus.CREATED if is_new else HTTPStatus.OK


async def list_schedules(call: OperationCall[ScheduleListQuery, None]) -> Answer:
    """Show a page of schedules."""
    asked = call.query
    found = await schedule_read.list_schedules(
        call.engine.store,
        namespace=call.namespace,
        page=requested_page(call.engine, asked, wants_total=asked.total_count),
        where=asked.filter(),
    )
    schedules = [view.listed(each) for each in found.items]
    return Answer(view.ScheduleListView(schedules=schedules, **page_fields(found)))


async def get_schedule(call: OperationCall[Scoped, None]) -> Answer:
    """Show a schedule."""
    found = await schedule_read.get_schedule(
        call.engine.store, namespace=call.namespace, schedule_id=call.path[_ID]
    )
    return Answer(view.schedule(found))


async def delete_schedule(call: OperationCall[Scoped, None]) -> Answer:
    """Delete a schedule."""
    command = c.DeleteSchedule(
        namespace=call.namespace, schedule_id=call.path[_ID], actor=call.principal.key_id
    )
    return await _change(call, command)


async def pause_schedule(call: OperationCall[Scoped, b.PauseBody]) -> Answer:
    """Pause a schedule."""
    command = c.PauseSchedule(
        namespace=call.namespace,
        schedule_id=call.path[_ID],
        note=call.body.note,
        actor=call.principal.key_id,
    )
    return await _change(call, command)


async def resume_schedule(call: OperationCall[Scoped, b.ResumeBody]) -> Answer:
    """Resume a schedule."""
    command = c.ResumeSchedule(
        namespace=call.namespace,
        schedule_id=call.path[_ID],
        mode=call.body.chosen_mode(),
        actor=call.principal.key_id,
    )
    return await _change(call, command)


async def _change(
    call: OperationCall[Scoped, Any], command: c.DeleteSchedule | c.PauseSchedule | c.ResumeSchedule
) -> Answer:
    schedule = await call.engine.submit(command)
    return Answer(view.schedule(schedule_read.view_of(schedule, call.engine.clock.now_ms())))


async def trigger_schedule(call: OperationCall[Scoped, b.TriggerBody]) -> Answer:
    """Fire a schedule now."""
    command = c.TriggerSchedule(
        namespace=call.namespace,
        schedule_id=call.path[_ID],
        trigger_id=call.body.trigger_id,
        actor=call.principal.key_id,
    )
    call.context.allowance.enqueues.take(call.namespace)
    answer = await call.engine.submit(command)
    shown = view.TriggeredView(fire=view.fire(answer.fire), is_new=answer.is_new)
    return Answer(shown, _created(is_new=answer.is_new))


async def backfill_schedule(call: OperationCall[Scoped, b.BackfillBody]) -> Answer:
    """Fire instants of the past."""
    from_ms, to_ms = call.body.bounds_ms()
    command = c.BackfillSchedule(
        namespace=call.namespace,
        schedule_id=call.path[_ID],
        from_ms=from_ms,
        to_ms=to_ms,
        actor=call.principal.key_id,
    )
    call.context.allowance.enqueues.take(call.namespace)
    return Answer(view.backfilled(await call.engine.submit(command)))


async def list_next_fires(call: OperationCall[NextQuery, None]) -> Answer:
    """Show the next instants of a schedule."""
    found = await schedule_read.get_schedule(
        call.engine.store, namespace=call.namespace, schedule_id=call.path[_ID]
    )
    found_plan = plan_of(found.schedule, now_ms=found.now_ms, count=call.query.count)
    return Answer(view.planned(found_plan))


async def preview_rule(call: OperationCall[Scoped, b.PreviewBody]) -> Answer:
    """Show the next instants of a rule."""
    return Answer(view.planned(call.body.plan(call.engine.clock.now_ms())))


async def list_fires(call: OperationCall[ScopedPageQuery, None]) -> Answer:
    """Show a page of what a schedule has fired and skipped."""
    found = await schedule_read.list_fires(
        call.engine.store,
        namespace=call.namespace,
        schedule_id=call.path[_ID],
        page=requested_page(call.engine, call.query),
    )
    fires = [view.fire(each) for each in found.items]
    return Answer(view.FireListView(fires=fires, **page_fields(found)))


_operation: Final = partial(Operation, group="Schedules", query=Scoped)
_change_operation: Final = partial(
    _operation,
    method="POST",
    action=Action.SUBMIT,
    answer=view.ScheduleItem,
    errors=("not_found", "wrong_state"),
)
_EXAMPLE: Final = (
    '{"scheduleId": "nightly", "rule": "0 2 * * *", "zone": "Europe/Berlin", "target": '
    '{"type": "report", "queue": "default", "startToCloseMs": 600000}}'
)
OPERATIONS: Final = (
    _operation(
        method="GET",
        path="/v1/schedules",
        name="listSchedules",
        summary="List schedules by id, paused ones too, without the input of what they start.",
        handle=list_schedules,
        is_list=True,
        action=Action.READ,
        query=ScheduleListQuery,
        answer=view.ScheduleListView,
        errors=("not_found",),
        example="?type=report&paused=true",
    ),
    _operation(
        method="POST",
        path="/v1/schedules",
        name="createSchedule",
        summary="Create a schedule. With a scheduleId the request may be repeated; 200 instead of "
        "201 means that it existed already and says the same.",
        handle=create_schedule,
        is_new_work=True,
        action=Action.SUBMIT,
        body=b.ScheduleBody,
        needs_body=True,
        answer=view.StoredItem,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("already_exists", "not_found", "wrong_state"),
        example=_EXAMPLE,
    ),
    _operation(
        method="POST",
        path="/v1/schedules:preview",
        name="previewRule",
        summary="The next instants of a rule that is not stored, in UTC and in its zone.",
        handle=preview_rule,
        action=Action.READ,
        body=b.PreviewBody,
        needs_body=True,
        answer=view.PlannedView,
        errors=("not_found",),
        example='{"rule": "30 2 * * *", "zone": "Europe/Berlin", "count": 5}',
    ),
    _operation(
        method="GET",
        path=_SCHEDULE,
        name="getSchedule",
        summary="Get a schedule.",
        handle=get_schedule,
        action=Action.READ,
        answer=view.ScheduleItem,
        errors=("not_found",),
    ),
    _operation(
        method="PUT",
        path=_SCHEDULE,
        name="putSchedule",
        summary="Create a schedule, or replace what it says. A new rule counts from now on; a "
        "paused schedule stays paused.",
        handle=put_schedule,
        is_new_work=True,
        action=Action.SUBMIT,
        body=b.ContentBody,
        needs_body=True,
        answer=view.StoredItem,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("not_found", "wrong_state"),
        example=_EXAMPLE.replace('"scheduleId": "nightly", ', ""),
    ),
    _operation(
        method="DELETE",
        path=_SCHEDULE,
        name="deleteSchedule",
        summary="Delete a schedule; tasks and runs that it has started go on. The answer is the "
        "schedule as it was.",
        handle=delete_schedule,
        action=Action.SUBMIT,
        answer=view.ScheduleItem,
        errors=("not_found",),
    ),
    _change_operation(
        path=f"{_SCHEDULE}/pause",
        name="pauseSchedule",
        summary="Pause a schedule: after the answer nothing fires, on any server.",
        handle=pause_schedule,
        body=b.PauseBody,
        example='{"note": "maintenance"}',
    ),
    _change_operation(
        path=f"{_SCHEDULE}/resume",
        name="resumeSchedule",
        summary="Resume a paused schedule, or let a broken one try again. The instants of the "
        "pause count as missed, or are skipped.",
        handle=resume_schedule,
        body=b.ResumeBody,
        example='{"mode": "SKIP"}',
    ),
    _operation(
        method="POST",
        path=f"{_SCHEDULE}/trigger",
        name="triggerSchedule",
        summary="Fire a schedule now, whatever its rule says. With a triggerId the request may be "
        "repeated; 200 instead of 201 means that it has fired already.",
        handle=trigger_schedule,
        is_new_work=True,
        action=Action.SUBMIT,
        body=b.TriggerBody,
        answer=view.TriggeredView,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("already_exists", "not_found", "wrong_state"),
        example='{"triggerId": "by-hand-1"}',
    ),
    _operation(
        method="POST",
        path=f"{_SCHEDULE}/backfill",
        name="backfillSchedule",
        summary="Fire the instants of its rule in (from, to], at most 1,000. Those that fired "
        "before do not fire again.",
        handle=backfill_schedule,
        is_new_work=True,
        action=Action.SUBMIT,
        body=b.BackfillBody,
        needs_body=True,
        answer=view.BackfilledView,
        errors=("not_found", "wrong_state"),
        example='{"from": "2030-05-01T00:00:00Z", "to": "2030-05-08T00:00:00Z"}',
    ),
    _operation(
        method="GET",
        path=f"{_SCHEDULE}/next",
        name="listNextFires",
        summary="The next instants of a schedule, in UTC and in its zone.",
        handle=list_next_fires,
        action=Action.READ,
        query=NextQuery,
        answer=view.PlannedView,
        errors=("not_found",),
        example="?count=5",
    ),
    _operation(
        method="GET",
        path=f"{_SCHEDULE}/fires",
        name="listFires",
        summary="What a schedule has fired and skipped, newest first, with lateness and outcome.",
        handle=list_fires,
        is_list=True,
        action=Action.READ,
        query=ScopedPageQuery,
        answer=view.FireListView,
        errors=("not_found",),
    ),
)
