"""The operations on runs."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any, Final

from msgspec import UNSET, Raw
from msgspec.structs import replace

from tenure.api.http.body import EmptyBody
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped
from tenure.api.http.route.run import view
from tenure.api.http.route.run.body import RetryRunBody, RunBody
from tenure.api.http.route.run.parameter import JournalQuery, RunListQuery
from tenure.api.http.route.task.body import JSON_ENCODING, CancelBody
from tenure.api.http.route.task.parameter import TaskQuery
from tenure.api.http.route.task.watch import wait_for_end
from tenure.api.http.view import page_fields
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.core.limits import CALL_MS, LONG_POLL_MS
from tenure.core.run.status import status_of
from tenure.engine.read import run as run_read
from tenure.engine.run import command as c
from tenure.errors import InvalidArgument

# The id may also be external:<id>.
_RUN: Final = "/v1/runs/{runId}"
_SIGNAL_ID: Final = "Signal-Id"


async def start_run(call: OperationCall[Scoped, RunBody]) -> Answer:
    """Start a run."""
    body = call.body
    if body.is_resend and body.run_id is UNSET:
        message = "isResend needs the runId of the first request"
        raise InvalidArgument(message, field="isResend")
    command = body.start(call.namespace, call.engine.clock.new_id())
    call.context.allowance.enqueues.take(call.namespace)
    answer = await call.engine.submit(command)
    return Answer(view.started(answer), _created(is_new=answer.is_new))


def _created(*, is_new: bool) -> int:
    return HTTPStatus.CREATED if is_new else HTTPStatus.OK


async def _named(call: OperationCall[Any, Any]) -> str:
    """Return the id of the run in the path, which may be named by its external id."""
    return await run_read.run_named(
        call.engine.store, namespace=call.namespace, run_id=call.path["runId"]
    )


async def list_runs(call: OperationCall[RunListQuery, None]) -> Answer:
    """Show a page of runs."""
    asked = call.query
    found = await run_read.list_runs(
        call.engine.store,
        namespace=call.namespace,
        page=requested_page(call.engine, asked, wants_total=asked.total_count),
        where=asked.filter(),
    )
    runs = [view.listed(each) for each in found.items]
    return Answer(view.RunListView(runs=runs, **page_fields(found)))


async def get_run(call: OperationCall[TaskQuery, None]) -> Answer:
    """Show a run, at once or when it has ended."""
    key = (call.namespace, await _named(call))
    wait_ms = call.query.whole_wait_ms()
    found = await run_read.get_run(call.engine.store, namespace=key[0], run_id=key[1])
    if wait_ms and found.task.finished_at_ms is None:
        await wait_for_end(call.context, key, wait_ms=wait_ms)
        found = await run_read.get_run(call.engine.store, namespace=key[0], run_id=key[1])
    return Answer(view.run(found))


async def read_journal(call: OperationCall[JournalQuery, None]) -> Answer:
    """Show a page of the journal of a run."""
    page = await run_read.read_journal(
        call.engine.store,
        namespace=call.namespace,
        run_id=call.path["runId"],
        after=call.query.after,
        group_key=call.query.group_key,
        open_after=call.query.open_after,
    )
    return Answer(view.journal(page))


async def signal_run(call: OperationCall[Scoped, Raw]) -> Answer:
    """Send a signal, whose payload is the body."""
    data = bytes(call.body)
    signal = c.NewSignal(
        name=call.path["signal"],
        payload=data or None,
        encoding=JSON_ENCODING if data else "",
        signal_id=call.header(_SIGNAL_ID),
    )
    run_id = await _named(call)
    command = c.SignalRun(namespace=call.namespace, run_id=run_id, signal=signal)
    call.context.allowance.enqueues.take(call.namespace)
    answer = await call.engine.submit(command)
    shown = view.SignalledView(run_id=run_id, is_new=answer.is_new)
    return Answer(shown, _created(is_new=answer.is_new))


async def cancel_run(call: OperationCall[Scoped, CancelBody]) -> Answer:
    """Request the cancel of a run."""
    run_id = await _named(call)
    command = c.CancelRun(
        namespace=call.namespace,
        run_id=run_id,
        reason=call.body.reason,
        actor=call.principal.key_id,
    )
    return await _change(call, command)


async def resume_run(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Let a paused run go on, and try a parked one."""
    key_id = call.principal.key_id
    command = c.ResumeRun(namespace=call.namespace, run_id=await _named(call), actor=key_id)
    return await _change(call, command)


async def terminate_run(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """End a run."""
    key_id = call.principal.key_id
    command = c.TerminateRun(namespace=call.namespace, run_id=await _named(call), actor=key_id)
    return await _change(call, command)


async def retry_run(call: OperationCall[Scoped, RetryRunBody]) -> Answer:
    """Make a new run from a finished one."""
    body = call.body
    call.context.allowance.enqueues.take(call.namespace)
    command = await run_read.plan_retry(
        call.engine.store,
        namespace=call.namespace,
        run_id=call.path["runId"],
        new_run_id=body.new_run_id or call.engine.clock.new_id(),
        from_step=body.from_step,
        from_position=body.from_position,
    )
    answer = await call.engine.submit(replace(command, actor=call.principal.key_id))
    return Answer(view.retried(answer), _created(is_new=answer.is_new))


async def _change(
    call: OperationCall[Scoped, CancelBody] | OperationCall[Scoped, EmptyBody],
    command: c.CancelRun | c.ResumeRun | c.TerminateRun,
) -> Answer:
    await call.engine.submit(command)
    # A cancel may leave it waiting: what for, only its row says.
    found = await run_read.get_run(
        call.engine.store, namespace=command.namespace, run_id=command.run_id
    )
    status = status_of(found.task).upper()
    return Answer(view.RunStatusView(run_id=command.run_id, status=status))


_operation: Final = partial(Operation, group="Runs", query=Scoped)
_change_operation: Final = partial(
    _operation, method="POST", action=Action.SUBMIT, answer=view.RunStatusView
)

OPERATIONS: Final = (
    _operation(
        method="POST",
        path="/v1/runs",
        name="startRun",
        summary="Start a run of a workflow. With runId or idempotencyKey the request may be "
        "repeated; 200 instead of 201 means that the run existed already. If another run "
        "has the externalId, onLive or onFinished decides. A runId may also be external:ID.",
        handle=start_run,
        is_new_work=True,
        action=Action.SUBMIT,
        body=RunBody,
        needs_body=True,
        answer=view.StartedView,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("already_exists", "idempotency_conflict", "not_found", "wrong_state"),
        example='{"type": "order", "queue": "default", "input": {"id": 42}}',
    ),
    _operation(
        method="GET",
        path="/v1/runs",
        name="listRuns",
        summary="List runs, newest first, live and finished, without their payloads.",
        handle=list_runs,
        is_list=True,
        action=Action.READ,
        query=RunListQuery,
        answer=view.RunListView,
        errors=("not_found",),
        example="?status=PARKED&label=team=shop",
    ),
    _operation(
        method="GET",
        path=_RUN,
        name="getRun",
        summary="Get a run: what it waits for, why it is parked, what it has published of itself. "
        "With wait, when it has ended or after that time.",
        handle=get_run,
        action=Action.READ,
        query=TaskQuery,
        answer=view.RunItem,
        errors=("not_found",),
        is_waiting=True,
        deadline_ms=CALL_MS + LONG_POLL_MS,
        example="?wait=30s",
    ),
    _operation(
        method="GET",
        path=f"{_RUN}/journal",
        name="readJournal",
        summary="Read the journal of a run: up to 1,000 entries or 256 KiB behind a position. From "
        "its start on it comes with the children and groups that are open.",
        handle=read_journal,
        is_list=True,
        action=Action.READ,
        query=JournalQuery,
        answer=view.JournalView,
        errors=("not_found",),
        example="?after=1000",
    ),
    _operation(
        method="POST",
        path=f"{_RUN}/signal/{{signal}}",
        name="signalRun",
        summary="Send a signal to a run; the body is its payload, any JSON or nothing. 200 instead "
        "of 201 means that a signal with this Signal-Id was there already.",
        handle=signal_run,
        action=Action.SUBMIT,
        body=Raw,
        headers={_SIGNAL_ID: "With it the request may be repeated"},
        answer=view.SignalledView,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("not_found", "task_already_terminal", "idempotency_conflict"),
        example='{"approved": true}',
    ),
    _change_operation(
        path=f"{_RUN}/cancel",
        name="cancelRun",
        summary="Ask a run to end; its code may clean up. One that never began ends at once.",
        handle=cancel_run,
        body=CancelBody,
        errors=("not_found", "task_already_terminal"),
        example='{"reason": "no longer needed"}',
    ),
    _change_operation(
        path=f"{_RUN}/resume",
        name="resumeRun",
        summary="Let a paused run go on, and try a parked one at once.",
        handle=resume_run,
        body=EmptyBody,
        errors=("not_found", "wrong_state"),
    ),
    _operation(
        method="POST",
        path=f"{_RUN}/retry",
        name="retryRun",
        summary="Make a new run from a finished one. It keeps what was recorded before fromStep, a "
        "call or last, or before fromPosition; without both it keeps nothing.",
        handle=retry_run,
        is_new_work=True,
        action=Action.SUBMIT,
        body=RetryRunBody,
        answer=view.RetriedView,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("not_found", "wrong_state", "already_exists", "data_damaged"),
        example='{"fromStep": "last"}',
    ),
    _change_operation(
        path=f"{_RUN}/terminate",
        name="terminateRun",
        summary="End a run now, as failed, without asking its code.",
        handle=terminate_run,
        body=EmptyBody,
        errors=("not_found", "task_already_terminal"),
    ),
)
