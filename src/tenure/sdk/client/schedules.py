"""The part of a client that is about schedules."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeVar

from tenure.core.limits import PAGE_SIZE_MAX
from tenure.errors import NotFound
from tenure.sdk.activity.definition import Activity
from tenure.sdk.client import method as m
from tenure.sdk.client import schedule_view
from tenure.sdk.client.client_state import ClientState, new_task_id
from tenure.sdk.client.schedule import Schedule, instant_ms, rule_to_wire, to_wire
from tenure.sdk.client.schedule_target import target_to_wire
from tenure.sdk.client.schedule_view import BackfillResult, PlannedFire, ScheduleFire, ScheduleInfo
from tenure.sdk.workflow.definition import Workflow
from tenure.v1 import schedule_service_pb2 as pb

P = ParamSpec("P")
Request = TypeVar("Request")


class Schedules:
    """The schedules of a namespace: what starts by itself, and when.

    >>> await client.schedules.put("nightly", "0 2 * * *", report, "yesterday")

    ``Client.schedules`` returns it.
    """

    def __init__(self, state: ClientState) -> None:
        """Use ``Client.schedules``."""
        self._state = state

    def __repr__(self) -> str:
        return f"<Schedules of {self._state.channel.place}, namespace {self._state.namespace}>"

    async def create(
        self,
        id: str,
        when: Schedule | str,
        target: Activity[P, Any] | Workflow[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ScheduleInfo:
        """Create a schedule that enqueues an activity, or starts a run of a workflow.

        >>> nightly = Schedule("0 2 * * *", zone="Europe/Berlin", overlap="skip")
        >>> await client.schedules.create("nightly", nightly, report, "yesterday")

        A text is a cron rule in UTC. Arguments that do not fit raise ``TypeError`` before it is
        sent. The same id and content again changes nothing; other content raises ``AlreadyExists``.
        """
        spec = self._spec(when, target, args, kwargs)
        request = pb.CreateScheduleRequest(
            namespace_id=self._state.namespace, schedule_id=id, spec=spec
        )
        answer = await self._state.ask(m.CREATE_SCHEDULE, request)
        return self._info(answer.schedule)

    async def put(
        self,
        id: str,
        when: Schedule | str,
        target: Activity[P, Any] | Workflow[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ScheduleInfo:
        """Create a schedule, or replace what it says; for code that runs with each deploy.

        >>> await client.schedules.put("sync", Schedule(every="5m"), sync_orders)

        A new rule counts from now on. A paused schedule stays paused.
        """
        spec = self._spec(when, target, args, kwargs)
        request = pb.PutScheduleRequest(
            namespace_id=self._state.namespace, schedule_id=id, spec=spec
        )
        answer = await self._state.ask(m.PUT_SCHEDULE, request)
        return self._info(answer.schedule)

    async def get(self, id: str) -> ScheduleInfo:
        """Return a schedule, with the input of what it starts."""
        request = pb.GetScheduleRequest(namespace_id=self._state.namespace, schedule_id=id)
        answer = await self._state.ask(m.GET_SCHEDULE, request)
        return self._info(answer.schedule)

    async def list(
        self, *, type: str = "", paused: bool | None = None, limit: int | None = None
    ) -> AsyncIterator[ScheduleInfo]:
        """Iterate over schedules in the order of their ids; pages are loaded as needed.

        >>> async for info in client.schedules.list(paused=True):
        ...     ...
        """
        request = pb.ListSchedulesRequest(
            namespace_id=self._state.namespace, type=type, is_paused=paused
        )
        left = limit
        while left is None or left > 0:
            request.page_size = PAGE_SIZE_MAX if left is None else min(left, PAGE_SIZE_MAX)
            answer = await self._state.ask(m.LIST_SCHEDULES, request)
            for schedule in answer.schedules:
                yield self._info(schedule)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return
            left = None if left is None else left - len(answer.schedules)

    async def pause(self, id: str, note: str = "") -> ScheduleInfo:
        """Pause a schedule: when this returns, it fires nothing more, on any server."""
        request = pb.PauseScheduleRequest(
            namespace_id=self._state.namespace, schedule_id=id, note=note
        )
        answer = await self._state.ask(m.PAUSE_SCHEDULE, request)
        return self._info(answer.schedule)

    async def resume(
        self, id: str, *, mode: Literal["catch_up", "skip"] = "catch_up"
    ) -> ScheduleInfo:
        """Resume a paused schedule.

        ``"catch_up"`` treats the instants of the pause as missed, so the newest of them fire, up to
        ``max_catchup``; ``"skip"`` records them as skipped.
        """
        request = pb.ResumeScheduleRequest(
            namespace_id=self._state.namespace, schedule_id=id, mode=mode.upper()
        )
        answer = await self._state.ask(m.RESUME_SCHEDULE, request)
        return self._info(answer.schedule)

    async def trigger(self, id: str, *, trigger_id: str = "") -> ScheduleFire:
        """Fire a schedule now, whatever its rule says; return the fire with its ``task_id``.

        The same ``trigger_id`` again fires nothing, and returns the first fire.
        """
        request = pb.TriggerScheduleRequest(
            namespace_id=self._state.namespace,
            schedule_id=id,
            # A lost answer must not fire twice.
            trigger_id=trigger_id or new_task_id(),
        )
        answer = await self._state.ask(m.TRIGGER_SCHEDULE, request)
        return schedule_view.fire(answer.fire)

    async def backfill(self, id: str, from_: datetime, to: datetime) -> BackfillResult:
        """Fire the instants after ``from_`` up to and with ``to``, at most 1,000.

        >>> await client.schedules.backfill("nightly", start_of_may, start_of_june)

        Instants that fired before do not fire again.
        """
        request = pb.BackfillScheduleRequest(
            namespace_id=self._state.namespace,
            schedule_id=id,
            from_ms=instant_ms(from_, "from_"),
            to_ms=instant_ms(to, "to"),
        )
        answer = await self._state.ask(m.BACKFILL_SCHEDULE, request)
        return schedule_view.backfill_result(answer)

    async def delete(self, id: str) -> None:
        """Delete a schedule; tasks and runs that it has started go on."""
        request = pb.DeleteScheduleRequest(namespace_id=self._state.namespace, schedule_id=id)
        is_repeated = False

        def again() -> pb.DeleteScheduleRequest:
            nonlocal is_repeated
            is_repeated = True
            return request

        try:
            await self._state.ask(m.DELETE_SCHEDULE, request, again)
        except NotFound:
            # The answer to the first request was lost.
            if not is_repeated:
                raise

    async def next(
        self, schedule: str | Schedule, *, count: int = 10
    ) -> builtins.list[PlannedFire]:
        """Return the next instants at which a schedule fires, at most 100.

        >>> await client.schedules.next(Schedule("30 2 * * *", zone="Europe/Berlin"))

        It is the id of a schedule, or one that need not be stored.
        """
        if isinstance(schedule, Schedule):
            preview = pb.PreviewRuleRequest(
                namespace_id=self._state.namespace, when=rule_to_wire(schedule), count=count
            )
            answer = await self._state.ask(m.PREVIEW_RULE, preview)
            return [schedule_view.planned(each) for each in answer.fires]
        request = pb.ListNextFiresRequest(
            namespace_id=self._state.namespace, schedule_id=schedule, count=count
        )
        found = await self._state.ask(m.LIST_NEXT_FIRES, request)
        return [schedule_view.planned(each) for each in found.fires]

    async def fires(self, id: str, *, limit: int | None = None) -> AsyncIterator[ScheduleFire]:
        """Iterate over what a schedule has fired and skipped, newest first.

        >>> async for fire in client.schedules.fires("nightly", limit=20):
        ...     print(fire.at, fire.outcome, fire.reason)
        """
        request = pb.ListFiresRequest(namespace_id=self._state.namespace, schedule_id=id)
        left = limit
        while left is None or left > 0:
            request.page_size = PAGE_SIZE_MAX if left is None else min(left, PAGE_SIZE_MAX)
            answer = await self._state.ask(m.LIST_FIRES, request)
            for each in answer.fires:
                yield schedule_view.fire(each)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return
            left = None if left is None else left - len(answer.fires)

    def _spec(
        self,
        when: Schedule | str,
        target: Activity[..., Any] | Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> pb.ScheduleSpec:
        spec = to_wire(when if isinstance(when, Schedule) else Schedule(when))
        spec.target.CopyFrom(target_to_wire(self._state.converter, target, args, kwargs))
        return spec

    def _info(self, schedule: pb.Schedule) -> ScheduleInfo:
        return schedule_view.schedule_info(schedule)
