"""The part of the way to a server that is about schedules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from google.protobuf.message import Message

from tenure.cli.client.connection import ServerConnection
from tenure.cli.client.request import RuleOptions, ScheduleOptions, ScheduleSelection
from tenure.cli.failure import CliError
from tenure.cli.show import schedule_view
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.v1 import schedule_service_pb2 as pb
from tenure.v1 import task_pb2
from tenure.v1.schedule_service_pb2_grpc import ScheduleServiceStub

_JSON: Final = "json"
Response = TypeVar("Response", bound=Message)
# What to do next, where it is another command than for a task.
_HINTS: Final = {
    "not_found": "Check the id and --namespace. List the schedules: tenure schedules ls",
    "wrong_state": "See the state: tenure schedules show ID",
    "already_exists": "Look at the run that has the id: tenure runs show external:ID",
    "invalid_argument": "Correct it and try again. See when a rule fires: "
    "tenure schedules next --rule RULE",
    "rate_limited": "Try again in a moment, or remove schedules: tenure schedules rm ID",
}


class ScheduleClient:
    """Speaks of schedules over the channel of a client."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server
        self._namespace = server.namespace
        self._stub = ScheduleServiceStub(server.channel)

    def put(
        self, schedule_id: str, type_name: str, options: ScheduleOptions
    ) -> schedule_view.ShownStored:
        """Create a schedule, or replace what it says."""
        request = pb.PutScheduleRequest(
            namespace_id=self._namespace,
            schedule_id=schedule_id,
            spec=pb.ScheduleSpec(
                when=_rule(options),
                target=_target(type_name, options),
                overlap=options["overlap"],
                max_catchup=options["max_catchup"],
                catchup_window_ms=options["catchup_window_ms"],
                jitter_ms=options["jitter_ms"],
                pause_after_failures=options["pause_after_failures"],
                note=options["note"],
            ),
        )
        answer = self._call(self._stub.PutSchedule, request, pb.PutScheduleResponse)
        return schedule_view.stored(answer)

    def get_schedule(self, schedule_id: str) -> schedule_view.ShownSchedule:
        """Return a schedule as it stands."""
        request = pb.GetScheduleRequest(namespace_id=self._namespace, schedule_id=schedule_id)
        answer = self._call(self._stub.GetSchedule, request, pb.GetScheduleResponse)
        return schedule_view.schedule(answer.schedule)

    def list_schedules(
        self, query: ScheduleSelection
    ) -> tuple[list[schedule_view.ShownSchedule], str]:
        """Return a page of schedules and the token of the next one."""
        request = pb.ListSchedulesRequest(
            namespace_id=self._namespace,
            type=query.type,
            is_paused=query.is_paused,
            page_size=min(query.limit, PAGE_SIZE_MAX),
            page_token=query.page_token,
        )
        answer = self._call(self._stub.ListSchedules, request, pb.ListSchedulesResponse)
        return list(map(schedule_view.schedule, answer.schedules)), answer.next_page_token

    def list_fires(
        self, schedule_id: str, page_token: str, limit: int
    ) -> tuple[list[schedule_view.ShownFire], str]:
        """Return a page of what a schedule has fired and skipped, and the next token."""
        request = pb.ListFiresRequest(
            namespace_id=self._namespace,
            schedule_id=schedule_id,
            page_size=min(limit, PAGE_SIZE_MAX),
            page_token=page_token,
        )
        answer = self._call(self._stub.ListFires, request, pb.ListFiresResponse)
        return list(map(schedule_view.fire, answer.fires)), answer.next_page_token

    def next_fires(self, schedule_id: str, count: int) -> schedule_view.ShownPlan:
        """Return the next instants of a schedule."""
        request = pb.ListNextFiresRequest(
            namespace_id=self._namespace, schedule_id=schedule_id, count=count
        )
        answer = self._call(self._stub.ListNextFires, request, pb.ListNextFiresResponse)
        return schedule_view.plan(answer)

    def preview(self, options: RuleOptions, count: int) -> schedule_view.ShownPlan:
        """Return the next instants of a rule that is not stored."""
        request = pb.PreviewRuleRequest(
            namespace_id=self._namespace, when=_rule(options), count=count
        )
        answer = self._call(self._stub.PreviewRule, request, pb.PreviewRuleResponse)
        return schedule_view.plan(answer)

    def pause(self, schedule_id: str, note: str) -> schedule_view.ShownSchedule:
        """Pause a schedule."""
        request = pb.PauseScheduleRequest(
            namespace_id=self._namespace, schedule_id=schedule_id, note=note
        )
        answer = self._call(self._stub.PauseSchedule, request, pb.PauseScheduleResponse)
        return schedule_view.schedule(answer.schedule)

    def resume(self, schedule_id: str, mode: str) -> schedule_view.ShownSchedule:
        """Resume a schedule."""
        request = pb.ResumeScheduleRequest(
            namespace_id=self._namespace, schedule_id=schedule_id, mode=mode
        )
        answer = self._call(self._stub.ResumeSchedule, request, pb.ResumeScheduleResponse)
        return schedule_view.schedule(answer.schedule)

    def trigger(self, schedule_id: str, trigger_id: str) -> schedule_view.ShownTriggered:
        """Fire a schedule now."""
        request = pb.TriggerScheduleRequest(
            namespace_id=self._namespace,
            schedule_id=schedule_id,
            trigger_id=trigger_id or self._server.clock.new_id(),
        )
        answer = self._call(self._stub.TriggerSchedule, request, pb.TriggerScheduleResponse)
        return schedule_view.triggered(answer)

    def backfill(self, schedule_id: str, from_ms: int, to_ms: int) -> schedule_view.ShownBackfilled:
        """Fire instants of the past."""
        request = pb.BackfillScheduleRequest(
            namespace_id=self._namespace, schedule_id=schedule_id, from_ms=from_ms, to_ms=to_ms
        )
        answer = self._call(self._stub.BackfillSchedule, request, pb.BackfillScheduleResponse)
        return schedule_view.backfilled(answer)

    def delete(self, schedule_id: str) -> schedule_view.ShownSchedule:
        """Delete a schedule; return it as it was."""
        request = pb.DeleteScheduleRequest(namespace_id=self._namespace, schedule_id=schedule_id)
        answer = self._call(self._stub.DeleteSchedule, request, pb.DeleteScheduleResponse)
        return schedule_view.schedule(answer.schedule)

    def _call(
        self, method: Callable[..., object], request: Message, kind: type[Response]
    ) -> Response:
        with _hints():
            return self._server.call(method, request, kind)


@contextlib.contextmanager
def _hints() -> Iterator[None]:
    """Advise what helps with schedules."""
    try:
        yield
    except CliError as error:
        error.hint = _HINTS.get(error.code, error.hint)
        raise


def _rule(options: RuleOptions) -> pb.ScheduleRule:
    return pb.ScheduleRule(
        rule=options["rule"],
        every_ms=options["every_ms"] or 0,
        offset_ms=options["offset_ms"],
        zone=options["zone"],
        starts_at_ms=options["starts_at_ms"] or 0,
        ends_at_ms=options["ends_at_ms"] or 0,
    )


def _target(type_name: str, options: ScheduleOptions) -> pb.ScheduleTarget:
    return pb.ScheduleTarget(
        type=type_name,
        task_queue=options["queue"],
        input=options["input"] or b"",
        options=_task_options(options),
        labels=dict(options["labels"]),
        priority=options["priority"],
        external_id=options["external_id"],
        on_live=options["on_live"] or "",
    )


def _task_options(options: ScheduleOptions) -> task_pb2.TaskOptions:
    is_run, most = options["is_workflow"], options["max_attempts"]
    attempts = int(is_run) if most is None else most
    return task_pb2.TaskOptions(
        kind=task_pb2.TASK_KIND_WORKFLOW if is_run else task_pb2.TASK_KIND_ACTIVITY,
        schedule_to_start_ms=options["schedule_to_start_ms"] or 0,
        schedule_to_close_ms=options["schedule_to_close_ms"] or 0,
        start_to_close_ms=options["start_to_close_ms"] or 0,
        heartbeat_timeout_ms=options["heartbeat_timeout_ms"] or 0,
        cancel_grace_period_ms=options["cancel_grace_ms"] or 0,
        retry=task_pb2.RetryPolicy(maximum_attempts=attempts),
        encoding=_JSON,
    )
