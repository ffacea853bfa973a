"""Tasks and attempts as a client shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from tenure.core.limits import PRIORITY_DEFAULT
from tenure.core.task.record import TaskState
from tenure.sdk.failure import RemoteError
from tenure.sdk.instant import datetime_of
from tenure.sdk.payload import Converter, Payload
from tenure.sdk.progress import HeartbeatDetails, TaskProgress
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb

_PREFIX: Final = "TASK_STATE_"
_STATES: Final[dict[int, TaskState]] = {
    number: TaskState(name.removeprefix(_PREFIX).lower())
    for name, number in task_pb2.TaskState.items()
    if number
}
_NUMBERS: Final = {state: number for number, state in _STATES.items()}


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The answer to a heartbeat from outside a worker: go on, or stop."""

    state: TaskState
    should_cancel: bool = False
    cancel_reason: str = ""


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of a task. Instants are the server's; None means not yet.

    In lists ``input``, ``output`` and ``heartbeat_details`` are left out. ``damaged`` names the
    parts that the server left out because their stored data has changed.
    """

    task_id: str
    type: str
    queue: str
    namespace: str
    state: TaskState
    priority: int = PRIORITY_DEFAULT
    attempt: int = 0
    worker_id: str = ""
    labels: dict[str, str] = {}
    idempotency_key: str = ""
    input: Payload | None = None
    output: Payload | None = None
    error: RemoteError | None = None
    failure_reason: str = ""
    cancel_reason: str = ""
    failure_count: int = 0
    interruption_count: int = 0
    progress: TaskProgress = TaskProgress()
    heartbeat_details: HeartbeatDetails = HeartbeatDetails()
    created_at: datetime | None = None
    run_at: datetime | None = None
    handed_at: datetime | None = None
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    is_pause_requested: bool = False
    run_id: str = ""
    parent_id: str = ""
    retry_of: str = ""
    schedule_id: str = ""
    fire_at: datetime | None = None
    damaged: tuple[str, ...] = ()


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a task; while it runs, it has neither an end nor an outcome."""

    attempt: int
    worker_id: str
    handed_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str = ""
    error: RemoteError | None = None


def task_info(task: task_pb2.Task, converter: Converter) -> TaskInfo:
    """Show a task."""
    encoding = task.options.encoding
    return TaskInfo(
        task_id=task.task_id,
        type=task.type,
        queue=task.task_queue,
        namespace=task.namespace_id,
        state=state_of(task.state),
        priority=task.priority,
        attempt=task.attempt,
        worker_id=task.worker_id,
        labels=dict(task.labels),
        idempotency_key=task.idempotency_key,
        input=Payload(encoding, task.input) if task.input else None,
        output=Payload(task.output_encoding or encoding, task.output) if task.output else None,
        error=RemoteError(task.error, converter) if task.HasField("error") else None,
        failure_reason=task.failure_reason,
        cancel_reason=task.cancel_reason,
        failure_count=task.failure_count,
        interruption_count=task.interruption_count,
        progress=progress(task),
        heartbeat_details=HeartbeatDetails(task.heartbeat_details, converter),
        created_at=datetime_of(task.created_at_ms),
        run_at=datetime_of(task.run_at_ms),
        handed_at=datetime_of(task.handed_at_ms),
        started_at=datetime_of(task.started_at_ms),
        heartbeat_at=datetime_of(task.heartbeat_at_ms),
        finished_at=datetime_of(task.finished_at_ms),
        cancel_requested_at=datetime_of(task.cancel_requested_at_ms),
        is_pause_requested=task.is_pause_requested,
        run_id=task.run_id,
        parent_id=task.parent_id,
        retry_of=task.retry_of,
        schedule_id=task.schedule_id,
        fire_at=datetime_of(task.fire_at_ms),
        damaged=tuple(task.damaged),
    )


def attempt_info(attempt: task_pb2.Attempt, converter: Converter) -> AttemptInfo:
    """Show an attempt."""
    return AttemptInfo(
        attempt=attempt.attempt,
        worker_id=attempt.worker_id,
        handed_at=datetime_of(attempt.handed_at_ms),
        ended_at=datetime_of(attempt.ended_at_ms),
        outcome=attempt.outcome,
        error=RemoteError(attempt.error, converter) if attempt.HasField("error") else None,
    )


def progress(task: task_pb2.Task) -> TaskProgress:
    """Show how far a task is."""
    percent = task.progress_percent if task.HasField("progress_percent") else None
    return TaskProgress(percent, task.progress_message)


def heartbeat_answer(answer: pb.HeartbeatTaskResponse) -> HeartbeatAnswer:
    """Show what the server says to a heartbeat."""
    return HeartbeatAnswer(state_of(answer.state), answer.should_cancel, answer.cancel_reason)


def state_of(number: int) -> TaskState:
    """Return the state of a number of the protocol."""
    return _STATES[number]


def state_number(state: TaskState | str | None) -> task_pb2.TaskState.ValueType:
    """Return the number of a state in the protocol; a ``ValueError`` lists the states."""
    if state is None:
        return task_pb2.TASK_STATE_UNSPECIFIED
    try:
        return task_pb2.TaskState.ValueType(_NUMBERS[TaskState(state.lower())])
    except ValueError:
        known = ", ".join(TaskState)
        raise ValueError(f"{state!r} is not a state of a task. The states are: {known}.") from None
