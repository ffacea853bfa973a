"""Schedules over gRPC."""

from __future__ import annotations

from typing import Final

from tenure.api.guard.access import actor
from tenure.api.guard.scope import scope
from tenure.api.paging import requested_page
from tenure.api.rpc.context import Context
from tenure.api.rpc.permission import MethodRule
from tenure.api.rpc.service_spec import EngineService, ServiceDependencies, ServiceSpec
from tenure.api.rpc.view import schedule_view
from tenure.core.access.permission import Action
from tenure.core.filter import ScheduleFilter
from tenure.core.schedule.plan import plan, plan_of
from tenure.core.schedule.record import Schedule
from tenure.engine.read import schedule as schedule_read
from tenure.engine.schedule import command as c
from tenure.v1 import schedule_service_pb2 as pb
from tenure.v1 import schedule_service_pb2_grpc

# When a client does not say how many fires it wants.
_COUNT: Final = 10


class ScheduleService(EngineService, schedule_service_pb2_grpc.ScheduleServiceServicer):
    """The life of schedules, their fires, and what they will fire."""

    def __init__(self, shared: ServiceDependencies) -> None:
        """Remember the options of what is started."""
        super().__init__(shared)
        self._targets = schedule_view.TargetReader()

    async def CreateSchedule(
        self, request: pb.CreateScheduleRequest, context: Context
    ) -> pb.CreateScheduleResponse:
        """Create a schedule; the same id and content again returns the same one."""
        namespace = scope(request.namespace_id)
        command = c.CreateSchedule(
            namespace=namespace,
            schedule_id=request.schedule_id,
            spec=schedule_view.spec(request.spec, self._targets),
            actor=actor(),
        )
        # It is stored like a task is.
        self._allowance.enqueues.take(namespace)
        answer = await self._engine.submit(command)
        return pb.CreateScheduleResponse(
            schedule=self._shown(answer.schedule), is_new=answer.is_new
        )

    async def PutSchedule(
        self, request: pb.PutScheduleRequest, context: Context
    ) -> pb.PutScheduleResponse:
        """Create a schedule, or replace what it says."""
        namespace = scope(request.namespace_id)
        command = c.PutSchedule(
            namespace=namespace,
            schedule_id=request.schedule_id,
            spec=schedule_view.spec(request.spec, self._targets),
            actor=actor(),
        )
        self._allowance.enqueues.take(namespace)
        answer = await self._engine.submit(command)
        return pb.PutScheduleResponse(
            schedule=self._shown(answer.schedule),
            is_new=answer.is_new,
            is_changed=answer.is_changed,
        )

    async def GetSchedule(
        self, request: pb.GetScheduleRequest, context: Context
    ) -> pb.GetScheduleResponse:
        """Show a schedule."""
        view = await self._get(request)
        return pb.GetScheduleResponse(schedule=schedule_view.shown(view))

    async def ListSchedules(
        self, request: pb.ListSchedulesRequest, context: Context
    ) -> pb.ListSchedulesResponse:
        """List schedules by id, without the input of what they start."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await schedule_read.list_schedules(
            self._engine.store,
            namespace=namespace,
            page=requested_page(self._engine, request, wants_total=request.wants_total),
            where=ScheduleFilter(
                type=request.type,
                is_paused=request.is_paused if request.HasField("is_paused") else None,
            ),
        )
        return pb.ListSchedulesResponse(
            schedules=[schedule_view.shown(each, with_payload=False) for each in page.items],
            next_page_token=page.next_page_token,
            total_count=page.total_count,
            is_total_exact=page.is_total_exact,
        )

    async def PauseSchedule(
        self, request: pb.PauseScheduleRequest, context: Context
    ) -> pb.PauseScheduleResponse:
        """Pause a schedule: after the answer nothing fires."""
        command = c.PauseSchedule(
            namespace=scope(request.namespace_id),
            schedule_id=request.schedule_id,
            note=request.note,
            actor=actor(),
        )
        paused = await self._engine.submit(command)
        return pb.PauseScheduleResponse(schedule=self._shown(paused))

    async def ResumeSchedule(
        self, request: pb.ResumeScheduleRequest, context: Context
    ) -> pb.ResumeScheduleResponse:
        """Resume a paused schedule, or let a broken one try again."""
        command = c.ResumeSchedule(
            namespace=scope(request.namespace_id),
            schedule_id=request.schedule_id,
            mode=schedule_view.resume_mode(request.mode),
            actor=actor(),
        )
        resumed = await self._engine.submit(command)
        return pb.ResumeScheduleResponse(schedule=self._shown(resumed))

    async def TriggerSchedule(
        self, request: pb.TriggerScheduleRequest, context: Context
    ) -> pb.TriggerScheduleResponse:
        """Fire a schedule now; the same trigger id again fires nothing."""
        namespace = scope(request.namespace_id)
        command = c.TriggerSchedule(
            namespace=namespace,
            schedule_id=request.schedule_id,
            trigger_id=request.trigger_id,
            actor=actor(),
        )
        self._allowance.enqueues.take(namespace)
        answer = await self._engine.submit(command)
        return pb.TriggerScheduleResponse(
            fire=schedule_view.fire(answer.fire), is_new=answer.is_new
        )

    async def BackfillSchedule(
        self, request: pb.BackfillScheduleRequest, context: Context
    ) -> pb.BackfillScheduleResponse:
        """Fire instants of the past that have not fired."""
        namespace = scope(request.namespace_id)
        command = c.BackfillSchedule(
            namespace=namespace,
            schedule_id=request.schedule_id,
            from_ms=request.from_ms,
            to_ms=request.to_ms,
            actor=actor(),
        )
        self._allowance.enqueues.take(namespace)
        answer = await self._engine.submit(command)
        return pb.BackfillScheduleResponse(
            started=[schedule_view.fire(each) for each in answer.started],
            known_keys=answer.known_keys,
        )

    async def DeleteSchedule(
        self, request: pb.DeleteScheduleRequest, context: Context
    ) -> pb.DeleteScheduleResponse:
        """Delete a schedule; what it has started goes on."""
        command = c.DeleteSchedule(
            namespace=scope(request.namespace_id), schedule_id=request.schedule_id, actor=actor()
        )
        deleted = await self._engine.submit(command)
        return pb.DeleteScheduleResponse(schedule=self._shown(deleted))

    async def ListNextFires(
        self, request: pb.ListNextFiresRequest, context: Context
    ) -> pb.ListNextFiresResponse:
        """Show the next fires of a schedule."""
        view = await self._get(request)
        planned = plan_of(view.schedule, now_ms=view.now_ms, count=request.count or _COUNT)
        return pb.ListNextFiresResponse(
            fires=[schedule_view.planned(each) for each in planned.fires], notes=planned.notes
        )

    async def PreviewRule(
        self, request: pb.PreviewRuleRequest, context: Context
    ) -> pb.PreviewRuleResponse:
        """Show the next fires of a rule that is not stored."""
        scope(request.namespace_id)
        when = request.when
        planned = plan(
            schedule_view.rule(when),
            starts_at_ms=when.starts_at_ms or None,
            ends_at_ms=when.ends_at_ms or None,
            after_ms=request.after_ms or self._engine.clock.now_ms(),
            count=request.count or _COUNT,
        )
        return pb.PreviewRuleResponse(
            fires=[schedule_view.planned(each) for each in planned.fires], notes=planned.notes
        )

    async def ListFires(
        self, request: pb.ListFiresRequest, context: Context
    ) -> pb.ListFiresResponse:
        """List what a schedule has fired and skipped, newest first."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await schedule_read.list_fires(
            self._engine.store,
            namespace=namespace,
            schedule_id=request.schedule_id,
            page=requested_page(self._engine, request),
        )
        return pb.ListFiresResponse(
            fires=[schedule_view.fire(each) for each in page.items],
            next_page_token=page.next_page_token,
        )

    async def _get(
        self, request: pb.GetScheduleRequest | pb.ListNextFiresRequest
    ) -> schedule_read.ScheduleView:
        return await schedule_read.get_schedule(
            self._engine.store,
            namespace=scope(request.namespace_id),
            schedule_id=request.schedule_id,
        )

    def _shown(self, schedule: Schedule) -> pb.Schedule:
        view = schedule_read.view_of(schedule, self._engine.clock.now_ms())
        return schedule_view.shown(view)


SPEC: Final = ServiceSpec(
    descriptor=pb.DESCRIPTOR.services_by_name["ScheduleService"],
    make=ScheduleService,
    add_to_server=schedule_service_pb2_grpc.add_ScheduleServiceServicer_to_server,
    rules={
        MethodRule(Action.READ): "GetSchedule ListSchedules ListNextFires PreviewRule ListFires",
        MethodRule(Action.SUBMIT): "CreateSchedule PutSchedule PauseSchedule ResumeSchedule "
        "TriggerSchedule BackfillSchedule DeleteSchedule",
    },
    new_work="CreateSchedule PutSchedule TriggerSchedule BackfillSchedule",
)
