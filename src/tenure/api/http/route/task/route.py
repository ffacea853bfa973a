"""The operations on tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from msgspec import UNSET

from tenure.api.http.body import DryRunBody
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped
from tenure.api.http.route.task import view
from tenure.api.http.route.task.body import (
    AgainBody,
    BatchBody,
    CancelBody,
    CompleteBody,
    EnqueueBody,
    TaskBody,
)
from tenure.api.http.route.task.parameter import TaskListQuery, TaskQuery
from tenure.api.http.route.task.watch import Change, TaskEventStream, wait_for_end
from tenure.api.http.view import consequences, instant_or_unset, page_fields
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.core.limits import BULK_ENQUEUE_MAX, CALL_MS, LONG_POLL_MS
from tenure.core.task import enqueue as enqueue_rules
from tenure.engine import rehearsal
from tenure.engine.read import query
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument, PayloadTooLarge, TenureError

_PlainChange = c.PauseTask | c.ResumeTask | c.TerminateTask
_TASK: Final = "/v1/tasks/{taskId}"
_SOME_ID: Final = "019b0000-0000-7000-8000-000000000001"


async def enqueue_task(call: OperationCall[Scoped, EnqueueBody]) -> Answer:
    """Enqueue one task."""
    (answer,) = await _enqueue(call, [call.body], is_resend=call.body.is_resend)
    return Answer(view.enqueued(answer), _created(is_new=answer.is_new))


async def enqueue_batch(call: OperationCall[Scoped, BatchBody]) -> Answer:
    """Enqueue many tasks, all or none."""
    if len(call.body.tasks) > BULK_ENQUEUE_MAX:
        message = f"tasks must have at most {BULK_ENQUEUE_MAX} entries"
        raise PayloadTooLarge(message, limit=BULK_ENQUEUE_MAX)
    try:
        answers = await _enqueue(call, call.body.tasks, is_resend=call.body.is_resend)
    except (InvalidArgument, PayloadTooLarge) as error:
        raise _placed(error, call.body.tasks) from error
    shown = view.BatchView(tasks=[view.enqueued(each) for each in answers])
    return Answer(shown, _created(is_new=any(each.is_new for each in answers)))


async def _enqueue(
    call: OperationCall[Scoped, EnqueueBody] | OperationCall[Scoped, BatchBody],
    bodies: Sequence[TaskBody],
    *,
    is_resend: bool,
) -> tuple[c.Enqueued, ...]:
    if is_resend and any(body.task_id is UNSET for body in bodies):
        message = "isResend needs the taskId of the first request"
        raise InvalidArgument(message, field="isResend")
    tasks = tuple(body.new_task(call.engine.clock.new_id()) for body in bodies)
    command = c.EnqueueTasks(namespace=call.namespace, tasks=tasks, is_resend=is_resend)
    call.context.allowance.enqueues.take(call.namespace, len(tasks))
    return await call.engine.submit(command)


def _created(*, is_new: bool) -> int:
    return HTTPStatus.CREATED if is_new else HTTPStatus.OK


def _placed(error: TenureError, bodies: Sequence[TaskBody]) -> TenureError:
    """Say which task of a batch an error is about; nothing was accepted."""
    for number, body in enumerate(bodies):
        try:
            enqueue_rules.check_new(body.new_task(_SOME_ID))
        except (InvalidArgument, PayloadTooLarge) as found:
            fields = dict(found.fields)
            if "field" in fields:
                fields["field"] = f"tasks[{number}].{fields['field']}"
            return type(found)(f"tasks[{number}]: {found.message}", **fields)
    return error


async def list_tasks(call: OperationCall[TaskListQuery, None]) -> Answer:
    """Show a page of tasks."""
    asked = call.query
    page = requested_page(call.engine, asked, wants_total=asked.total_count)
    plain, search = asked.plain(), asked.search()
    store, namespace = call.engine.store, call.namespace
    if asked.id:
        found = await query.find_listed(
            store, namespace=namespace, task_ids=asked.id, page=page, plain=plain, where=search
        )
    else:
        found = await query.list_tasks(store, namespace=namespace, page=page, where=search.plain())
    tasks = [view.task(each, with_payloads=False) for each in found.items]
    back_to = instant_or_unset(found.searched_back_to_ms)
    return Answer(view.TaskListView(tasks=tasks, searched_back_to=back_to, **page_fields(found)))


async def get_task(call: OperationCall[TaskQuery, None]) -> Answer:
    """Show a task, at once or when it has ended."""
    key = (call.namespace, call.path["taskId"])
    task = await wait_for_end(call.context, key, wait_ms=call.query.whole_wait_ms())
    return Answer(view.task(task))


async def list_attempts(call: OperationCall[Scoped, None]) -> Answer:
    """Show the attempts of a task."""
    found = await query.list_attempts(
        call.engine.store, namespace=call.namespace, task_id=call.path["taskId"]
    )
    return Answer(view.AttemptListView(attempts=[view.attempt(each) for each in found]))


async def watch_task(call: OperationCall[Scoped, None]) -> TaskEventStream:
    """Send a task's changes as they happen, until it has ended."""
    key = (call.namespace, call.path["taskId"])
    task = await query.get_task(call.engine.store, namespace=key[0], task_id=key[1])
    return TaskEventStream(call.context, call.caller, key, task)


async def cancel_task(call: OperationCall[Scoped, CancelBody]) -> Answer:
    """Request the cancel of a task."""
    task_id, reason = call.path["taskId"], call.body.reason
    command = c.CancelTask(
        namespace=call.namespace, task_id=task_id, reason=reason, actor=call.principal.key_id
    )
    return await _change_or_rehearse(call, command)


async def complete_task(call: OperationCall[Scoped, CompleteBody]) -> Answer:
    """Complete a task from outside its worker."""
    finish = call.body.finish(call.path["taskId"])
    return await _change(call, c.CompleteById(namespace=call.namespace, finish=finish))


async def _change(
    call: OperationCall[Scoped, Any], command: c.CancelTask | c.CompleteById | _PlainChange
) -> Answer:
    reported = await call.engine.submit(command)
    shown = view.StateView(task_id=call.path["taskId"], state=reported.state.upper())
    return Answer(shown)


async def _change_or_rehearse(
    call: OperationCall[Scoped, Any], command: c.CancelTask | _PlainChange
) -> Answer:
    """Change a task, or only tell what would happen."""
    if not call.body.dry_run:
        return await _change(call, command)
    found = await rehearsal.of_task_change(call.engine, command)
    task = await query.get_task(
        call.engine.store, namespace=call.namespace, task_id=command.task_id
    )
    shown = view.StateView(
        task_id=task.id, state=task.state.upper(), consequences=consequences(found)
    )
    return Answer(shown)


async def retry_task(call: OperationCall[Scoped, AgainBody]) -> Answer:
    """Create a new task from a finished one."""
    new_id = call.body.new_task_id
    command = c.RetryTask(
        namespace=call.namespace,
        task_id=call.path["taskId"],
        new_task_id=call.engine.clock.new_id() if new_id is UNSET else new_id,
        actor=call.principal.key_id,
    )
    call.context.allowance.enqueues.take(call.namespace)
    answer = await call.engine.submit(command)
    return Answer(view.enqueued(answer), _created(is_new=answer.is_new))


_WRONG: Final = ("not_found", "wrong_state", "task_already_terminal")

_operation: Final = partial(Operation, group="Tasks", query=Scoped)


def _plain_change(verb: str, kind: type[_PlainChange], summary: str) -> Operation:
    """Return an operation that changes a task and needs only its id."""

    async def change(call: OperationCall[Scoped, DryRunBody]) -> Answer:
        task_id, key_id = call.path["taskId"], call.principal.key_id
        command = kind(namespace=call.namespace, task_id=task_id, actor=key_id)
        return await _change_or_rehearse(call, command)

    return _operation(
        method="POST",
        path=f"{_TASK}/{verb}",
        name=f"{verb}Task",
        summary=summary,
        handle=change,
        action=Action.SUBMIT,
        body=DryRunBody,
        answer=view.StateView,
        errors=_WRONG,
    )


OPERATIONS: Final = (
    _operation(
        method="POST",
        path="/v1/tasks",
        name="enqueueTask",
        summary="Enqueue a task. With taskId or idempotencyKey the request may be repeated; "
        "200 instead of 201 means that the task existed already.",
        handle=enqueue_task,
        is_new_work=True,
        action=Action.SUBMIT,
        body=EnqueueBody,
        needs_body=True,
        answer=view.EnqueuedView,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("already_exists", "idempotency_conflict", "not_found", "wrong_state"),
        example='{"type": "mail", "queue": "default", "input": {"to": "ann"}, '
        '"startToCloseMs": 60000}',
    ),
    _operation(
        method="POST",
        path="/v1/tasks:batch",
        name="enqueueTasks",
        summary="Enqueue up to 1,000 tasks, all or none.",
        handle=enqueue_batch,
        is_new_work=True,
        action=Action.SUBMIT,
        body=BatchBody,
        needs_body=True,
        answer=view.BatchView,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("already_exists", "idempotency_conflict", "not_found", "wrong_state"),
        example='{"tasks": [{"type": "mail", "queue": "default", "startToCloseMs": 60000}]}',
    ),
    _operation(
        method="GET",
        path="/v1/tasks",
        name="listTasks",
        summary="List tasks, newest first, live and finished, without their payloads.",
        handle=list_tasks,
        is_list=True,
        action=Action.READ,
        query=TaskListQuery,
        answer=view.TaskListView,
        errors=("not_found",),
        example="?state=FAILED&pageSize=5",
    ),
    _operation(
        method="GET",
        path=_TASK,
        name="getTask",
        summary="Get a task; with wait, when it has ended or after that time.",
        handle=get_task,
        action=Action.READ,
        query=TaskQuery,
        answer=view.TaskView,
        errors=("not_found",),
        is_waiting=True,
        deadline_ms=CALL_MS + LONG_POLL_MS,
        example="?wait=30s",
    ),
    _operation(
        method="GET",
        path=f"{_TASK}/attempts",
        name="listAttempts",
        summary="List the attempts of a task: which worker had it, and how each ended.",
        handle=list_attempts,
        action=Action.READ,
        answer=view.AttemptListView,
        errors=("not_found",),
    ),
    _operation(
        method="GET",
        path=f"{_TASK}/watch",
        name="watchTask",
        summary="Watch a task as server-sent events: state and progress (a Change), at the end "
        "result (a Task). For curl -N.",
        handle=watch_task,
        action=Action.READ,
        media_type="text/event-stream",
        events=(Change,),
        is_waiting=True,
        errors=("not_found",),
    ),
    _operation(
        method="POST",
        path=f"{_TASK}/cancel",
        name="cancelTask",
        summary="Cancel a task: at once if no worker runs it, else its worker is told to stop.",
        handle=cancel_task,
        action=Action.SUBMIT,
        body=CancelBody,
        answer=view.StateView,
        errors=_WRONG,
        example='{"reason": "no longer needed"}',
    ),
    _plain_change(
        "pause",
        c.PauseTask,
        "Pause a task: at once if no worker runs it, else when its attempt ends.",
    ),
    _plain_change("resume", c.ResumeTask, "Resume a paused task."),
    _operation(
        method="POST",
        path=f"{_TASK}/retry",
        name="retryTask",
        summary="Create a new task from a finished one. With newTaskId the call may be repeated.",
        handle=retry_task,
        is_new_work=True,
        action=Action.SUBMIT,
        body=AgainBody,
        answer=view.EnqueuedView,
        status=HTTPStatus.CREATED,
        may_find=True,
        errors=("not_found", "wrong_state", "already_exists", "data_damaged"),
    ),
    _plain_change(
        "terminate", c.TerminateTask, "End a task now, as failed, without asking its worker."
    ),
    _operation(
        method="POST",
        path=f"{_TASK}/complete",
        name="completeTask",
        summary="Complete a task asynchronously: its live attempt, or the named one.",
        handle=complete_task,
        action=Action.SUBMIT,
        body=CompleteBody,
        needs_body=True,
        answer=view.StateView,
        errors=(*_WRONG, "attempt_mismatch"),
        example='{"outcome": "SUCCEEDED", "output": {"sent": true}}',
    ),
)
