"""Converts runs between records of the core and messages of the wire."""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import Message
from msgspec.structs import replace

from tenure.api.rpc.view import journal_view, task_view
from tenure.api.rpc.view.worker_view import instant, milliseconds
from tenure.core import limits
from tenure.core.run.external_id import OnFinished, OnLive
from tenure.core.run.record import NOT_BEGUN, RunProgress, Wait
from tenure.core.run.status import RunStatus, status_of
from tenure.core.task.record import NewTask, Spec, Task, TaskKind, TaskState
from tenure.core.task.retry import RetryPolicy
from tenure.engine.read.run import RunView
from tenure.engine.run import command as c
from tenure.errors import InvalidArgument
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb

STATUSES: Final = {
    each: pb.WorkflowStatus.Value(f"WORKFLOW_STATUS_{each.name}") for each in RunStatus
}
Choice = TypeVar("Choice", OnLive, OnFinished)
# A failure of its code would be replayed: a run begins anew only if its client wants that.
_ONCE: Final = RetryPolicy(maximum_attempts=1)


def status(text: str) -> RunStatus | None:
    """Return the status filter of a list; empty means all."""
    if not text:
        return None
    try:
        return RunStatus(text.lower())
    except ValueError:
        names = ", ".join(each.name for each in RunStatus)
        raise InvalidArgument(
            f"filter_status must be one of {names}", field="filterStatus"
        ) from None


def on_live(text: str) -> OnLive:
    """Return what a start does if a live run has its external id; empty is the default."""
    return _choice(OnLive, text or OnLive.RETURN, "onLive")


def on_finished(text: str) -> OnFinished:
    """Return what a start does if only finished runs have its external id."""
    return _choice(OnFinished, text or OnFinished.ALLOW, "onFinished")


def _choice(kind: type[Choice], text: str, field: str) -> Choice:
    try:
        return kind(text.lower())
    except ValueError:
        names = ", ".join(each.name for each in kind)
        raise InvalidArgument(f"{field} must be one of {names}", field=field) from None


def given_instant_ms(message: Message, name: str) -> int | None:
    """Return the instant in a field, if it is set."""
    return milliseconds(getattr(message, name)) if message.HasField(name) else None


def read_options(given: task_pb2.TaskOptions) -> Spec:
    """Return the spec of the options of a run; one of another kind is refused later."""
    spec = task_view.read_options(given)
    retry = spec.retry if given.HasField("retry") else _ONCE
    return replace(spec, kind=spec.kind if given.kind else TaskKind.WORKFLOW, retry=retry)


def new_run(message: pb.StartWorkflowRequest, run_id: str, specs: task_view.SpecReader) -> NewTask:
    """Return a run as a client requests it."""
    return NewTask(
        run_id,
        message.workflow_type,
        message.task_queue,
        specs.read(message.options),
        message.input,
        message.priority if message.HasField("priority") else limits.PRIORITY_DEFAULT,
        milliseconds(message.run_at),
        dict(message.labels) or None,
        message.idempotency_key,
    )


def signal(message: pb.NewSignal) -> c.NewSignal:
    """Return a signal as its sender gives it."""
    return c.NewSignal(
        name=message.name,
        payload=message.payload if message.HasField("payload") else None,
        encoding=message.encoding,
        signal_id=message.signal_id,
        sender=message.sender,
    )


def listed(task: Task) -> pb.WorkflowRun:
    """Show a run in a list, without its payloads."""
    spec, progress, where = task.spec, task.progress, task.place
    run = progress.run or NOT_BEGUN
    made = pb.WorkflowRun(
        run_id=task.id,
        namespace_id=task.namespace,
        task_queue=task.queue,
        workflow_type=task.type,
        status=STATUSES[status_of(task)],
        error=task_view.task_error(progress.error),
        attempts=task.attempt,
        created_at=instant(task.created_at_ms),
        finished_at=instant(task.finished_at_ms),
        idempotency_key=spec.idempotency_key,
        labels=task.labels or {},
        options=task_view.options(spec),
        priority=task.priority,
        worker_id=task.worker_id or "",
        generation=run.generation,
        begun_at=instant(run.begun_at_ms),
        park_count=run.park_count,
        progress_percent=progress.percent,
        progress_message=progress.message or "",
        failure_reason=progress.reason or "",
        cancel_requested_at=instant(progress.cancel_at_ms),
        cancel_reason=progress.cancel_reason,
        output_encoding=task.output_encoding,
        run_at=instant(task.run_at_ms),
        damaged=task.damaged,
        is_pause_requested=progress.pause_wanted,
        parent_id=where.run_id,
        root_run_id=where.root_run_id,
        step_key=where.key,
        first_run_id=where.first_run_id,
        retry_of=spec.retry_of,
        schedule_id=spec.schedule_id,
        fire_at=instant(spec.fire_at_ms),
        external_id="" if task.link is None else task.link.external_id or "",
    )
    if task.state is TaskState.WAITING:
        _add_waits(made, run)
    return made


def _add_waits(made: pb.WorkflowRun, run: RunProgress) -> None:
    """Show what a run waits for; of one that does not wait it is what it waited for last."""
    made.MergeFrom(
        pb.WorkflowRun(
            wake_up_at=instant(run.wake_at_ms),
            park_error=task_view.task_error(run.park),
            waits=[_wait(each) for each in run.waits],
            wait_count=run.wait_count,
        )
    )


def _wait(wait: Wait) -> task_pb2.Wait:
    return task_pb2.Wait(
        kind=wait.kind, key=wait.key, since_ms=wait.since_ms, detail=wait.detail, site=wait.site
    )


def shown(view: RunView) -> pb.WorkflowRun:
    """Show one run with its payloads, how much its journal has, and what is open."""
    task = view.task
    made = listed(task)
    made.input = task.input or b""
    made.output = task.output or b""
    made.entry_count = view.entry_count
    made.journal_bytes = view.journal_bytes
    made.open_child_count = view.open_child_count
    made.groups.extend([journal_view.open_group(each) for each in view.groups])
    if task.progress.details is not None:
        made.state_value = task.progress.details
    return made
