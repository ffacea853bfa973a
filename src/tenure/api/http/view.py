"""The answers, and how they are made from what the engine knows."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from tenure.api.http.body import EPOCH, JSON_ENCODING, Base64
from tenure.api.http.edge.strict_json import is_json
from tenure.core.queue import Namespace
from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Reason, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorInfo, RetryPolicy
from tenure.core.worker.health import Health
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import EndReason, Worker, WorkerMode, WorkerStatus
from tenure.engine.read.query import AttemptView, Page, QueueView, WorkerView
from tenure.engine.task import command as c

T = TypeVar("T")
StrValues = type[TaskState | TaskKind | Outcome | WorkerStatus | WorkerMode | Health]


def _names(values: StrValues) -> Meta:
    return Meta(extra_json_schema={"enum": [each.upper() for each in values]})


Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
StateName = Annotated[str, _names(TaskState)]
OutcomeName = Annotated[str, _names(Outcome)]
StatusName = Annotated[str, _names(WorkerStatus)]
_COUNT: Final = "Present when totalCount=true"
_EXACT: Final = "False when counting stopped: there are at least so many"
_COUNT_EXACT: Final = "False when counting stopped: at least so many, perhaps of more types"
_NEXT: Final = "Not there on the last page; a page may be short, or empty, and not the last"


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer; what is not there is left out."""


class EnqueuedView(View, frozen=True):
    """A task that was taken in, or that was there already."""

    task_id: str
    state: StateName
    is_new: bool


class BatchView(View, frozen=True):
    """One answer for each task, in their order."""

    tasks: list[EnqueuedView]


class StateView(View, frozen=True):
    """Where a task stands now."""

    task_id: str
    state: StateName


class RetryPolicyView(View, frozen=True):
    """How failures are retried; a maximum of 0 is 100 x initial, or no limit of attempts."""

    initial_interval_ms: int
    backoff_coefficient: float
    maximum_interval_ms: int
    maximum_attempts: int
    non_retryable_error_types: tuple[str, ...]


class FailureView(View, frozen=True):
    """What is known of a failure."""

    category: str
    message: str
    type: str | UnsetType = UNSET
    stack_trace: str | UnsetType = UNSET
    details: Raw | UnsetType = UNSET
    details_base64: Base64 | UnsetType = msgspec.field(default=UNSET, name="detailsBase64")
    retryable: bool | UnsetType = UNSET
    next_retry_delay_ms: int | UnsetType = UNSET


class TaskView(View, frozen=True):
    """A task. Lists leave out input, output and heartbeat details."""

    task_id: str
    namespace: str
    queue: str
    type: str
    kind: Annotated[str, _names(TaskKind)]
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
    failure_reason: (
        Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in Reason]})]
        | UnsetType
    ) = UNSET
    error: FailureView | UnsetType = UNSET
    failure_count: int = 0
    interruption_count: int = 0
    progress_percent: float | UnsetType = UNSET
    progress_message: str | UnsetType = UNSET
    heartbeat_details: Raw | UnsetType = UNSET
    heartbeat_details_base64: Base64 | UnsetType = msgspec.field(
        default=UNSET,
        name="heartbeatDetailsBase64",
    )
    cancel_requested_at: Instant | UnsetType = UNSET
    cancel_reason: str | UnsetType = UNSET
    is_pause_requested: bool | UnsetType = UNSET
    labels: dict[str, str] = {}
    resources: dict[str, str] = {}
    encoding: str = ""
    input: Raw | UnsetType = UNSET
    input_base64: Base64 | UnsetType = msgspec.field(default=UNSET, name="inputBase64")
    output: Raw | UnsetType = UNSET
    output_base64: Base64 | UnsetType = msgspec.field(default=UNSET, name="outputBase64")
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
    run_id: str | UnsetType = UNSET
    parent_id: str | UnsetType = UNSET
    retry_of: str | UnsetType = UNSET


class TaskListView(View, frozen=True):
    """A page of tasks, newest first."""

    tasks: list[TaskView]
    next_page_token: Annotated[str, Meta(description=_NEXT)] | UnsetType = UNSET
    total_count: Annotated[int, Meta(description=_COUNT)] | UnsetType = UNSET
    is_total_exact: Annotated[bool, Meta(description=_EXACT)] | UnsetType = UNSET


class AttemptItem(View, frozen=True):
    """One hand-out of a task; of the live one the end is not known."""

    attempt: int
    handed_at: Instant
    worker_id: str | UnsetType = UNSET
    ended_at: Instant | UnsetType = UNSET
    outcome: OutcomeName | UnsetType = UNSET
    error: FailureView | UnsetType = UNSET


class AttemptListView(View, frozen=True):
    """The attempts of a task in their order."""

    attempts: list[AttemptItem]


class LeaseView(View, frozen=True):
    """Until when the server considers a worker alive."""

    until: Instant
    duration_ms: int
    last_heartbeat_at: Instant
    server_id: str
    suspect_until: Instant | UnsetType = UNSET


class WorkerItem(View, frozen=True):
    """A worker; lease, health and counters are there while it is active."""

    worker_id: str
    namespace: str
    queue: str
    status: StatusName
    mode: Annotated[str, _names(WorkerMode)]
    types: tuple[str, ...]
    max_concurrent: int
    registered_at: Instant
    health: Annotated[str, _names(Health)] | UnsetType = UNSET
    held_count: (
        Annotated[int, Meta(description="Live attempts it holds; left out in lists")] | UnsetType
    ) = UNSET
    lease: LeaseView | UnsetType = UNSET
    active_count: int | UnsetType = UNSET
    total_completed: int | UnsetType = UNSET
    total_failed: int | UnsetType = UNSET
    loop_lag_ms: int | UnsetType = UNSET
    stuck_count: int | UnsetType = UNSET
    name: str | UnsetType = UNSET
    hostname: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    version: str | UnsetType = UNSET
    labels: dict[str, str] = {}
    session_no: int = 0
    drain_deadline_at: Instant | UnsetType = UNSET
    ended_at: Instant | UnsetType = UNSET
    end_reason: EndReason | UnsetType = UNSET


class WorkerListView(View, frozen=True):
    """A page of workers, newest first."""

    workers: list[WorkerItem]
    next_page_token: Annotated[str, Meta(description=_NEXT)] | UnsetType = UNSET
    total_count: Annotated[int, Meta(description=_COUNT)] | UnsetType = UNSET
    is_total_exact: Annotated[bool, Meta(description=_EXACT)] | UnsetType = UNSET


class DrainedView(View, frozen=True):
    """The workers that drain now: none of them gets anything new."""

    worker_ids: list[str]


class QueueItem(View, frozen=True):
    """A queue: its brakes, and its live tasks by state and by type and state."""

    name: str
    paused: bool
    concurrency_max: int
    counts: dict[str, int] = {}
    types: dict[str, dict[str, int]] = {}
    is_count_exact: Annotated[bool, Meta(description=_COUNT_EXACT)] = True


class QueueListView(View, frozen=True):
    """A page of the queues that have settings or live tasks, by name."""

    queues: list[QueueItem]
    next_page_token: Annotated[str, Meta(description=_NEXT)] | UnsetType = UNSET


class NamespaceItem(View, frozen=True):
    """A namespace."""

    name: str
    created_at: Instant | UnsetType = UNSET
    is_disabled: bool | UnsetType = UNSET


class NamespaceListView(View, frozen=True):
    """A page of namespaces, by name."""

    namespaces: list[NamespaceItem]
    next_page_token: str | UnsetType = UNSET


class HealthView(View, frozen=True):
    """The server is there, or ready."""

    status: str


class ErrorView(View, frozen=True):
    """Every error; the fields of its code stand beside the message."""

    error: str
    message: str


def instant(at_ms: int) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds."""
    text = (EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def _instant(at_ms: int | None) -> str | UnsetType:
    return instant(at_ms) if at_ms else UNSET


def _set(value: T | None) -> T | UnsetType:
    """Leave out what is not there; 0 and False are there, an empty text is not."""
    return UNSET if value is None or value == "" else value


def _more(value: int) -> int | UnsetType:
    """Leave out a number whose 0 means that there is none."""
    return value or UNSET


def payload_fields(name: str, data: bytes | None, *, encoding: str) -> dict[str, Any]:
    """Return the field that shows a payload: JSON as it is, everything else as base64."""
    if data is None:
        return {}
    if encoding == JSON_ENCODING and is_json(data):
        return {name: Raw(data)}
    return {f"{name}_base64": base64.b64encode(data).decode()}


def enqueued(answer: c.Enqueued) -> EnqueuedView:
    """Show a task that was taken in."""
    return EnqueuedView(
        task_id=answer.task_id,
        state=answer.state.upper(),
        is_new=answer.is_new,
    )


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
        handed_at=_instant(task.handed_at_ms),
        started_at=_instant(progress.confirmed_at_ms),
        heartbeat_at=_instant(progress.beat_at_ms),
        finished_at=_instant(task.finished_at_ms),
        worker_id=_set(task.worker_id),
        last_outcome=UNSET if task.last_outcome is None else task.last_outcome.upper(),
        failure_reason=UNSET if progress.reason is None else progress.reason.value,
        error=failure(progress.error, encoding=spec.encoding),
        failure_count=progress.failure_count,
        interruption_count=progress.interruption_count,
        progress_percent=_set(progress.percent),
        progress_message=_set(progress.message),
        cancel_requested_at=_instant(progress.cancel_at_ms),
        cancel_reason=_set(progress.cancel_reason),
        is_pause_requested=progress.pause_wanted or UNSET,
        labels=task.labels or {},
        damaged=task.damaged or UNSET,
        retry=_policy(spec.retry),
        **_asked(task),
        **(_payloads(task) if with_payloads else {}),
    )


def _asked(task: Task) -> dict[str, Any]:
    """What was asked for and says little to most readers."""
    spec = task.spec
    return {
        "resources": spec.resources,
        "encoding": spec.encoding,
        "schedule_to_start_ms": _more(spec.schedule_to_start_ms),
        "schedule_to_close_ms": _more(spec.schedule_to_close_ms),
        "start_to_close_ms": _more(spec.start_to_close_ms),
        "heartbeat_timeout_ms": _more(spec.heartbeat_timeout_ms),
        "heartbeat_interval_ms": _more(spec.heartbeat_interval_ms),
        "cancel_grace_period_ms": spec.cancel_grace_ms,
        "delivery_timeout_ms": spec.delivery_timeout_ms,
        "idempotency_key": _set(spec.idempotency_key),
        "run_id": _set(spec.run_id),
        "parent_id": _set(spec.parent_id),
        "retry_of": _set(spec.retry_of),
    }


def _payloads(task: Task) -> dict[str, Any]:
    encoding = task.spec.encoding
    return {
        **payload_fields("input", task.input, encoding=encoding),
        **_output(task),
        **payload_fields("heartbeat_details", task.progress.details, encoding=encoding),
    }


def _output(task: Task) -> dict[str, Any]:
    """Return the output; bytes come with their encoding, JSON speaks for itself."""
    fields = payload_fields("output", task.output, encoding=task.output_encoding)
    if "output_base64" in fields:
        fields["output_encoding"] = _set(task.output_encoding)
    return fields


def _policy(policy: RetryPolicy) -> RetryPolicyView:
    return RetryPolicyView(
        initial_interval_ms=policy.initial_interval_ms,
        backoff_coefficient=policy.backoff_coefficient,
        maximum_interval_ms=policy.maximum_interval_ms,
        maximum_attempts=policy.maximum_attempts,
        non_retryable_error_types=policy.non_retryable_error_types,
    )


def failure(error: ErrorInfo | None, *, encoding: str) -> FailureView | UnsetType:
    """Show a failure, if there is one."""
    if error is None:
        return UNSET
    return FailureView(
        category=error.category.value,
        message=error.message,
        type=_set(error.type),
        stack_trace=_set(error.stack_trace),
        retryable=_set(error.retryable),
        next_retry_delay_ms=_set(error.next_delay_ms),
        **payload_fields("details", error.details, encoding=encoding),
    )


def task_list(page: Page[Task]) -> TaskListView:
    """Show a page of tasks."""
    return TaskListView(
        tasks=[task(each, with_payloads=False) for each in page.items],
        **_page(page),
    )


def _page(page: Page[Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"next_page_token": _set(page.next_page_token)}
    if page.total_count is not None:
        fields |= {"total_count": page.total_count, "is_total_exact": page.is_total_exact}
    return fields


def attempt(view: AttemptView) -> AttemptItem:
    """Show an attempt."""
    return AttemptItem(
        attempt=view.number,
        handed_at=instant(view.handed_at_ms),
        worker_id=_set(view.worker_id),
        ended_at=_instant(view.ended_at_ms),
        outcome=UNSET if view.outcome is None else view.outcome.upper(),
        error=failure(view.error, encoding=JSON_ENCODING),
    )


def worker(view: WorkerView) -> WorkerItem:
    """Show a worker. Its instance key stays unseen: whoever knows it can take its place."""
    item = view.worker
    return WorkerItem(
        worker_id=item.id,
        namespace=item.namespace,
        queue=item.queue,
        status=item.status.upper(),
        mode=item.mode.upper(),
        types=item.types,
        max_concurrent=item.slots,
        registered_at=instant(item.registered_at_ms),
        health=UNSET if view.health is None else view.health.upper(),
        held_count=_set(view.held_count),
        name=_set(item.name),
        hostname=_set(item.hostname),
        pid=_more(item.pid),
        version=_set(item.software_version),
        labels=item.labels,
        session_no=item.session_no,
        drain_deadline_at=_instant(item.drain_at_ms),
        ended_at=_instant(item.ended_at_ms),
        end_reason=_set(item.end_reason),
        **({} if view.lease is None else _lease(view.lease)),
    )


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "lease": LeaseView(
            until=instant(lease.lease_until_ms),
            duration_ms=lease.lease_ms,
            last_heartbeat_at=instant(lease.beat_at_ms),
            server_id=lease.server_id,
            suspect_until=_instant(lease.suspect_until_ms),
        ),
        "active_count": lease.active_count,
        "total_completed": lease.total_completed,
        "total_failed": lease.total_failed,
        "loop_lag_ms": lease.loop_lag_ms,
        "stuck_count": lease.stuck_count,
    }


def changed_worker(item: Worker) -> WorkerItem:
    """Show a worker that a command has changed; its lease was not read."""
    return worker(WorkerView(item, None, None))


def worker_list(page: Page[WorkerView]) -> WorkerListView:
    """Show a page of workers."""
    return WorkerListView(workers=[worker(each) for each in page.items], **_page(page))


def queue(view: QueueView) -> QueueItem:
    """Show a queue."""
    types = {
        type_: {state.upper(): count for state, count in sorted(counts.items())}
        for type_, counts in sorted(view.counts.items())
    }
    totals = {state: view.count(state) for state in TaskState}
    return QueueItem(
        name=view.queue.name,
        paused=view.queue.is_paused,
        concurrency_max=view.queue.concurrency_max,
        counts={state.upper(): count for state, count in totals.items() if count},
        types=types,
        is_count_exact=view.is_exact,
    )


def queue_list(page: Page[QueueView]) -> QueueListView:
    """Show a page of queues."""
    return QueueListView(queues=[queue(each) for each in page.items], **_page(page))


def namespace(item: Namespace) -> NamespaceItem:
    """Show a namespace."""
    return NamespaceItem(
        name=item.name,
        created_at=instant(item.created_at_ms),
        is_disabled=item.is_disabled,
    )


def namespace_list(page: Page[Namespace]) -> NamespaceListView:
    """Show a page of namespaces."""
    return NamespaceListView(
        namespaces=[namespace(each) for each in page.items],
        next_page_token=_set(page.next_page_token),
    )
