"""The operations of the worker contract. Late reports are logged, and change nothing."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeVar

import structlog

from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import NoQuery
from tenure.api.http.route.callback import view
from tenure.api.http.route.callback.body import CompletedBody, HeartbeatBody, StartedBody
from tenure.api.http.view import instant, or_unset
from tenure.core.access.task_token import Claims
from tenure.core.task import callback_token
from tenure.core.task.record import Task, TaskState
from tenure.engine.callback import command as c
from tenure.engine.command import Command
from tenure.errors import AttemptMismatch, TaskAlreadyTerminal, TaskExpired, TenureError

log = structlog.get_logger("tenure.http")
B = TypeVar("B", StartedBody, HeartbeatBody, CompletedBody)
_TASK: Final = "/v1/tasks/{taskId}"


async def report_started(call: OperationCall[NoQuery, StartedBody]) -> Answer:
    """Note that a process has begun its attempt."""
    claims, body = _claims(call), call.body
    command = c.StartCallback(
        namespace=claims.namespace,
        run_id=claims.run_id,
        item=body.ref(claims.task_id),
        said=body.said(),
    )
    answer = await _submit(call, command)
    return Answer(view.StartedView(**_time(call), **_renewed(call, answer.task)))


async def report_heartbeat(call: OperationCall[NoQuery, HeartbeatBody]) -> Answer:
    """Note that a process makes progress."""
    claims = _claims(call)
    command = c.BeatCallback(
        namespace=claims.namespace, run_id=claims.run_id, item=call.body.beat(claims.task_id)
    )
    answer = await _submit(call, command)
    shown = view.HeartbeatView(
        **_time(call),
        should_cancel=answer.reported.should_cancel,
        cancel_reason=or_unset(answer.reported.cancel_reason),
        **_renewed(call, answer.task),
    )
    return Answer(shown)


async def report_completed(call: OperationCall[NoQuery, CompletedBody]) -> Answer:
    """Note that a process has ended its attempt."""
    claims = _claims(call)
    command = c.CompleteCallback(
        namespace=claims.namespace, run_id=claims.run_id, item=call.body.finish(claims.task_id)
    )
    task = (await _submit(call, command)).task
    is_retried = task.state is TaskState.PENDING
    shown = view.CompletedView(
        **_time(call),
        final_state=task.state.upper(),
        next_attempt_at=or_unset(instant(task.run_at_ms) if is_retried else None),
    )
    return Answer(shown)


def _claims(call: OperationCall[NoQuery, B]) -> Claims:
    assert call.claims is not None
    return call.claims


async def _submit(
    call: OperationCall[NoQuery, B], command: Command[c.CallbackAnswer]
) -> c.CallbackAnswer:
    try:
        return await call.engine.submit(command)
    except (AttemptMismatch, TaskAlreadyTerminal, TaskExpired) as late:
        _note_late(call, late)
        raise


def _note_late(call: OperationCall[NoQuery, B], late: TenureError) -> None:
    claims = _claims(call)
    log.info(
        "callback.late",
        task_id=claims.task_id,
        attempt=claims.attempt,
        namespace=claims.namespace,
        code=late.code,
    )


def _time(call: OperationCall[NoQuery, Any]) -> dict[str, Any]:
    return view.server_time(call.engine.tokens.now_ms)


def _renewed(call: OperationCall[NoQuery, B], task: Task) -> dict[str, Any]:
    """Return a fresh token when half of the life of the present one is over."""
    tokens = call.engine.tokens
    now_ms = tokens.now_ms
    if not callback_token.is_renewal_due(_claims(call), now_ms):
        return {}
    claims = callback_token.claims(task, now_ms)
    return {"task_token": tokens.sign(claims), "token_expires_at": instant(claims.expires_at_ms)}


_LATE: Final = ("invalid_token", "attempt_mismatch", "task_already_terminal")
_operation: Final = partial(
    Operation, method="POST", group="Callbacks", action=None, has_task_token=True, needs_body=True
)
OPERATIONS: Final = (
    _operation(
        path=f"{_TASK}/started",
        name="reportStarted",
        summary="A process has begun its attempt; it needs the task token of the attempt.",
        handle=report_started,
        body=StartedBody,
        answer=view.StartedView,
        errors=(*_LATE, "wrong_state"),
        example='{"attempt": 1, "workerId": "worker-1"}',
    ),
    _operation(
        path=f"{_TASK}/heartbeat",
        name="reportProgress",
        summary="A process makes progress; the answer says whether it shall stop.",
        handle=report_heartbeat,
        body=HeartbeatBody,
        answer=view.HeartbeatView,
        errors=(*_LATE, "task_expired"),
        example='{"attempt": 1, "progressPct": 45}',
    ),
    _operation(
        path=f"{_TASK}/completed",
        name="reportCompleted",
        summary="A process has ended its attempt. The same report again gets the same answer.",
        handle=report_completed,
        body=CompletedBody,
        answer=view.CompletedView,
        errors=_LATE,
        example='{"attempt": 1, "outcome": "SUCCEEDED", "output": {"sent": true}}',
    ),
)
