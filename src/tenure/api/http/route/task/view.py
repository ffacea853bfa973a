"""The answers about tasks, and how they are made from records of the engine."""

from __future__ import annotations

import base64
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType, field, structs

from tenure.api.http.edge.strict_json import is_json
from tenure.api.http.route.callback.view import CallbackItem, callback
from tenure.api.http.route.task.body import JSON_ENCODING, Base64
from tenure.api.http.view import (
    Consequences,
    Instant,
    IsTotalExact,
    NextPageToken,
    TotalCount,
    View,
    instant,
    instant_or_unset,
    name_or_unset,
    names,
    or_unset,
    values,
)
from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Reason, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorInfo
from tenure.engine.read.query import AttemptView
from tenure.engine.task import command as c

StateName = Annotated[str, names(TaskState)]
OutcomeName = Annotated[str, names(Outcome)]


class EnqueuedView(View, frozen=True):
    """A task that was enqueued, or that existed already."""

    task_id: str
    state: StateName
    is_new: bool


class BatchView(View, frozen=True):
    """One answer for each task, in their order."""

    tasks: list[EnqueuedView]


class StateView(View, frozen=True):
    """The present state of a task."""

    task_id: str
    state: StateName
    consequences: Consequences = UNSET


class RetryPolicyView(View, frozen=True):
    """How failures are retried; a maximum of 0 means 100 x initial, or no limit of attempts."""

    initial_interval_ms: int
    backoff_coefficient: float
    maximum_interval_ms: int
    maximum_attempts: int
    non_retryable_error_types: tuple[str, ...]


class FailureView(View, frozen=True):
    """The details of a failure."""

    category: str
    message: str
    type: str | UnsetType = UNSET
    stack_trace: str | UnsetType = UNSET
    details: Raw | UnsetType = UNSET
    details_base64: Base64 | UnsetType = field(default=UNSET, name="detailsBase64")
    retryable: bool | UnsetType = UNSET
    next_retry_delay_ms: int | UnsetType = UNSET


class TaskView(View, frozen=True):
    """A task. Lists leave out input, output and heartbeat details."""

    task_id: str
    namespace: str
    queue: str
    type: str
    kind: Annotated[str, names(TaskKind)]
    state: StateName
    priority: int
    attempt: int
    version: int
    created_at: Instant
    run_at: Instant
    retry: RetryPolicyView
    handed_at: Instant | UnsetType = UNSET
    started_at: Instant | UnsetType = UNSET
    heartbeat_at: Instant | UnsetType = UNSET
    finished_at: Instant | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
    last_outcome: OutcomeName | UnsetType = UNSET
    failure_reason: Annotated[str, values(Reason)] | UnsetType = UNSET
    error: FailureView | UnsetType = UNSET
    failure_count: int = 0
    interruption_count: int = 0
    progress_percent: float | UnsetType = UNSET
    progress_message: str | UnsetType = UNSET
    heartbeat_details: Raw | UnsetType = UNSET
    heartbeat_details_base64: Base64 | UnsetType = field(
        default=UNSET, name="heartbeatDetailsBase64"
    )
    cancel_requested_at: Instant | UnsetType = UNSET
    cancel_reason: str | UnsetType = UNSET
    is_pause_requested: bool | UnsetType = UNSET
    labels: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    encoding: str = ""
    input: Raw | UnsetType = UNSET
    input_base64: Base64 | UnsetType = field(default=UNSET, name="inputBase64")
    output: Raw | UnsetType = UNSET
    output_base64: Base64 | UnsetType = field(default=UNSET, name="outputBase64")
    output_encoding: Annotated[str, Meta(description="Of outputBase64")] | UnsetType = UNSET
    damaged: (
        Annotated[tuple[str, ...], Meta(description="Stored parts that are damaged and left out")]
        | UnsetType
    ) = UNSET
    schedule_to_start_ms: int | UnsetType = UNSET
    schedule_to_close_ms: int | UnsetType = UNSET
    start_to_close_ms: int | UnsetType = UNSET
    heartbeat_timeout_ms: int | UnsetType = UNSET
    heartbeat_interval_ms: int | UnsetType = UNSET
    cancel_grace_period_ms: int = 0
    delivery_timeout_ms: int = 0
    idempotency_key: str | UnsetType = UNSET
    run_id: Annotated[str, Meta(description="The run that made it")] | UnsetType = UNSET
    parent_id: str | UnsetType = UNSET
    root_run_id: (
        Annotated[
            str, Meta(description="The first run of the tree: its parent's parent, and so on")
        ]
        | UnsetType
    ) = UNSET
    step_key: Annotated[str, Meta(description="The call of the run that made it")] | UnsetType = (
        UNSET
    )
    retry_of: str | UnsetType = UNSET
    schedule_id: Annotated[str, Meta(description="The schedule that started it")] | UnsetType = (
        UNSET
    )
    fire_at: (
        Annotated[Instant, Meta(description="For which instant the schedule started it")]
        | UnsetType
    ) = UNSET


class TaskListView(View, frozen=True):
    """A page of tasks, newest first."""

    tasks: list[TaskView]
    next_page_token: NextPageToken = UNSET
    total_count: TotalCount = UNSET
    is_total_exact: IsTotalExact = UNSET
    searched_back_to: (
        Annotated[Instant, Meta(description="This page ended early; the next goes on from here")]
        | UnsetType
    ) = UNSET


class AttemptItem(View, frozen=True):
    """One hand-out of a task; the end of a live one is not known."""

    attempt: int
    handed_at: Instant
    worker_id: str | UnsetType = UNSET
    ended_at: Instant | UnsetType = UNSET
    outcome: OutcomeName | UnsetType = UNSET
    error: FailureView | UnsetType = UNSET
    callback: CallbackItem | UnsetType = UNSET


class AttemptListView(View, frozen=True):
    """The attempts of a task in their order."""

    attempts: list[AttemptItem]


def payload_fields(name: str, data: bytes | None, *, encoding: str) -> dict[str, Any]:
    """Return the field that shows a payload: JSON as it is, everything else as base64."""
    if data is None:
        return {}
    if encoding == JSON_ENCODING and is_json(data):
        return {name: Raw(data)}
    return {f"{name}_base64": base64.b64encode(data).decode()}


def enqueued(answer: c.Enqueued) -> EnqueuedView:
    """Show an enqueued task."""
    return EnqueuedView(task_id=answer.task_id, state=answer.state.upper(), is_new=answer.is_new)


def task(task: Task, *, with_payloads: bool = True) -> TaskView:
    """Show a task."""
    spec, progress = task.spec, task.progress
    return TaskView(
        task_id=task.id,
        namespace=task.namespace,
        queue=task.queue,
        type=task.type,
        kind=spec.kind.upper(),
        state=task.state.upper(),
        priority=task.priority,
        attempt=task.attempt,
        version=task.version,
        created_at=instant(task.created_at_ms),
        run_at=instant(task.run_at_ms),
        handed_at=instant_or_unset(task.handed_at_ms),
        started_at=instant_or_unset(progress.confirmed_at_ms),
        heartbeat_at=instant_or_unset(progress.beat_at_ms),
        finished_at=instant_or_unset(task.finished_at_ms),
        worker_id=or_unset(task.worker_id),
        last_outcome=name_or_unset(task.last_outcome),
        failure_reason=UNSET if progress.reason is None else progress.reason.value,
        error=failure(progress.error, encoding=spec.encoding),
        failure_count=progress.failure_count,
        interruption_count=progress.interruption_count,
        progress_percent=or_unset(progress.percent),
        progress_message=or_unset(progress.message),
        cancel_requested_at=instant_or_unset(progress.cancel_at_ms),
        cancel_reason=or_unset(progress.cancel_reason),
        is_pause_requested=progress.pause_wanted or UNSET,
        labels=task.labels or {},
        damaged=task.damaged or UNSET,
        retry=RetryPolicyView(**structs.asdict(spec.retry)),
        **_asked(task),
        **(_payloads(task) if with_payloads else {}),
    )


def _asked(task: Task) -> dict[str, Any]:
    """Show the fields of the request that most readers do not need."""
    spec = task.spec
    return {
        "resources": spec.resources,
        "encoding": spec.encoding,
        "schedule_to_start_ms": spec.schedule_to_start_ms or UNSET,
        "schedule_to_close_ms": spec.schedule_to_close_ms or UNSET,
        "start_to_close_ms": spec.start_to_close_ms or UNSET,
        "heartbeat_timeout_ms": spec.heartbeat_timeout_ms or UNSET,
        "heartbeat_interval_ms": spec.heartbeat_interval_ms or UNSET,
        "cancel_grace_period_ms": spec.cancel_grace_ms,
        "delivery_timeout_ms": spec.delivery_timeout_ms,
        "idempotency_key": or_unset(spec.idempotency_key),
        "retry_of": or_unset(spec.retry_of),
        **fire_fields(task),
        **place_fields(task),
        "run_id": or_unset(task.place.run_id),
    }


def fire_fields(task: Task) -> dict[str, Any]:
    """Return which schedule has started a task, and for which instant."""
    fire = task.spec.fire
    if fire is None:
        return {}
    return {"schedule_id": fire.schedule_id, "fire_at": instant_or_unset(fire.fire_at_ms)}


def place_fields(task: Task) -> dict[str, Any]:
    """Return where a task stands in runs: which one made it, and by which call."""
    where = task.place
    return {
        "parent_id": or_unset(where.run_id),
        "root_run_id": or_unset(where.root_run_id),
        "step_key": or_unset(where.key),
    }


def _payloads(task: Task) -> dict[str, Any]:
    encoding = task.spec.encoding
    return {
        **payload_fields("input", task.input, encoding=encoding),
        **output_fields(task),
        **payload_fields("heartbeat_details", task.progress.details, encoding=encoding),
    }


def output_fields(task: Task) -> dict[str, Any]:
    """Return the output; bytes come with their encoding, JSON without."""
    fields = payload_fields("output", task.output, encoding=task.output_encoding)
    if "output_base64" in fields:
        fields["output_encoding"] = or_unset(task.output_encoding)
    return fields


def failure(error: ErrorInfo | None, *, encoding: str) -> FailureView | UnsetType:
    """Show a failure, if there is one."""
    if error is None:
        return UNSET
    return FailureView(
        category=error.category.value,
        message=error.message,
        type=or_unset(error.type),
        stack_trace=or_unset(error.stack_trace),
        retryable=or_unset(error.retryable),
        next_retry_delay_ms=or_unset(error.next_delay_ms),
        **payload_fields("details", error.details, encoding=encoding),
    )


def attempt(view: AttemptView) -> AttemptItem:
    """Show an attempt."""
    return AttemptItem(
        attempt=view.number,
        handed_at=instant(view.handed_at_ms),
        worker_id=or_unset(view.worker_id),
        ended_at=instant_or_unset(view.ended_at_ms),
        outcome=name_or_unset(view.outcome),
        error=failure(view.error, encoding=JSON_ENCODING),
        callback=callback(view.callback),
    )
