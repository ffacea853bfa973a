"""Converts calls to served workers, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenure.api.rpc import error
from tenure.api.rpc.view import task_view
from tenure.core.seat.kill import Kill, KillReason
from tenure.core.task.record import Task
from tenure.core.worker import decide as worker_rules
from tenure.engine.command import TaskRef
from tenure.engine.seat.call import Ack, Call, CallAnswer
from tenure.engine.task import command as t
from tenure.errors import TenureError
from tenure.v1 import session_service_pb2, task_pb2
from tenure.v1 import worker_service_pb2 as pb

_REASONS: Final = {
    KillReason.CANCEL: pb.KILL_REASON_CANCEL,
    KillReason.NOT_HELD: pb.KILL_REASON_NOT_HELD,
}


_NO_STATE: Final = task_pb2.TASK_STATE_UNSPECIFIED


def request(call: Call, token_of: Callable[[Task], str]) -> pb.HeartbeatRequest:
    """Return a call as its worker gets it; each task comes with a task token."""
    made = pb.HeartbeatRequest(
        worker_id=call.worker_id,
        namespace_id=call.namespace,
        server_id=call.server_id,
        session_no=call.session_no,
        call_no=call.call_no,
        answered_call_no=call.answered_no,
        tasks_to_run=[task_view.assigned(task, token_of(task)) for task in call.tasks],
        tasks_to_kill=[_kill(each) for each in call.kills],
        acks=[_ack(each) for each in call.acks],
        lease_duration_ms=call.lease_ms,
        heartbeat_interval_ms=call.interval_ms,
    )
    if call.drain_in_ms is not None:
        made.drain.deadline_in_ms = call.drain_in_ms
    if call.end is not None:
        over = worker_rules.inactive(call.worker_id, call.end)
        made.end.error.CopyFrom(error.detail(over))
    return made


def _kill(kill: Kill) -> pb.TaskToKill:
    return pb.TaskToKill(
        task_id=kill.task_id,
        attempt=kill.attempt,
        reason=_REASONS[kill.reason],
        stop_reason=kill.cause.value if kill.cause else "",
    )


def _ack(ack: Ack) -> session_service_pb2.Ack:
    pbs = session_service_pb2
    kind = pbs.REPORT_KIND_FINISHED if ack.is_finish else pbs.REPORT_KIND_STARTED
    said = ack.answer
    return pbs.Ack(
        task_id=ack.ref.task_id,
        attempt=ack.ref.attempt,
        kind=kind,
        state=task_view.STATES[said.state] if isinstance(said, t.Reported) else _NO_STATE,
        error=None if isinstance(said, t.Reported) else error.detail(said),
    )


def answer(message: pb.HeartbeatResponse) -> CallAnswer:
    """Return the answer of a worker; completions that cannot be read are apart."""
    finished: list[t.Finish] = []
    bad: list[tuple[TaskRef, TenureError]] = []
    for entry in message.completed_tasks:
        try:
            finished.append(task_view.finish(entry.finish))
        except TenureError as refusal:
            bad.append((_ref(entry.finish), refusal))
    return CallAnswer(
        worker_id=message.worker_id,
        call_no=message.call_no,
        running=task_view.refs(message.running_tasks),
        exclusive=task_view.exclusive_refs(message.running_tasks),
        finished=tuple(finished),
        bad=tuple(bad),
        beats=tuple(
            task_view.beat(each, each.task_id, each.attempt) for each in message.task_beats
        ),
        total_completed=message.total_completed,
        total_failed=message.total_failed,
        active_count=message.active_count,
        loop_lag_ms=message.loop_lag_ms,
        stuck_count=message.stuck_count,
        window=message.window,
        is_full=message.is_full,
        has_more=message.has_more,
    )


def _ref(message: task_pb2.TaskFinish) -> TaskRef:
    return TaskRef(message.task_id, message.attempt)
