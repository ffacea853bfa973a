"""Records of the wire as plain objects, with the names that they have in HTTP/JSON.

What is not there is left out. Payloads are shown as JSON where they are JSON, else as base64.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.cli.show.text import instant_text
from tenure.v1 import admin_service_pb2, task_pb2, task_service_pb2, worker_pb2

_ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
_JSON: Final = "json"
_decode: Final = msgspec.json.Decoder().decode


class Shown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something to show; a field that is None is left out."""


class ShownFailure(Shown, frozen=True):
    """Why an attempt or a task failed."""

    message: str
    category: str
    type: str | None = None
    retryable: bool | None = None
    next_retry_delay_ms: int | None = None
    stack_trace: str | None = None
    details: msgspec.Raw | None = None
    details_base64: str | None = None


class ShownRetry(Shown, frozen=True):
    """How failures are retried."""

    initial_interval_ms: int
    backoff_coefficient: float
    maximum_interval_ms: int
    maximum_attempts: int
    non_retryable_error_types: list[str]


class ShownTask(Shown, frozen=True, kw_only=True):
    """A task; in lists it comes without payloads."""

    task_id: str
    namespace: str
    queue: str
    type: str
    kind: str
    state: str
    priority: int
    attempt: int
    version: int
    created_at: str
    run_at: str
    handed_at: str | None = None
    started_at: str | None = None
    heartbeat_at: str | None = None
    finished_at: str | None = None
    worker_id: str | None = None
    failure_reason: str | None = None
    error: ShownFailure | None = None
    failure_count: int
    interruption_count: int
    progress_percent: float | None = None
    progress_message: str | None = None
    cancel_requested_at: str | None = None
    cancel_reason: str | None = None
    labels: dict[str, str]
    encoding: str
    schedule_to_start_ms: int | None = None
    schedule_to_close_ms: int | None = None
    start_to_close_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    retry: ShownRetry
    idempotency_key: str | None = None
    run_id: str | None = None
    parent_id: str | None = None
    retry_of: str | None = None
    input: msgspec.Raw | None = None
    input_base64: str | None = None
    output: msgspec.Raw | None = None
    output_base64: str | None = None
    output_encoding: str | None = None
    damaged: list[str] | None = None
    heartbeat_details: msgspec.Raw | None = None
    heartbeat_details_base64: str | None = None

    @property
    def is_ended(self) -> bool:
        """Tell whether nothing will change any more."""
        return self.state in _ENDED


class ShownEnqueued(Shown, frozen=True):
    """A task that was taken in, or that was there already."""

    task_id: str
    state: str
    is_new: bool


class ShownAttempt(Shown, frozen=True):
    """One hand-out of a task; of the live one the end is not known."""

    attempt: int
    handed_at: str
    worker_id: str | None = None
    ended_at: str | None = None
    outcome: str | None = None
    error: ShownFailure | None = None


class ShownLease(Shown, frozen=True):
    """Until when the server considers a worker alive."""

    until: str
    duration_ms: int
    last_heartbeat_at: str | None = None


class ShownWorker(Shown, frozen=True, kw_only=True):
    """A worker; lease, health and counters are there while it is active."""

    worker_id: str
    namespace: str
    queue: str
    status: str
    mode: str
    types: list[str]
    max_concurrent: int
    registered_at: str
    health: str | None = None
    held_count: int
    lease: ShownLease | None = None
    lease_left_ms: int | None = None
    may_stop: bool
    total_completed: int
    total_failed: int
    name: str | None = None
    hostname: str | None = None
    pid: int | None = None
    version: str | None = None
    labels: dict[str, str]
    session_no: int
    drain_deadline_at: str | None = None
    ended_at: str | None = None
    end_reason: str | None = None


class ShownQueue(Shown, frozen=True):
    """A queue: its brakes, and its live tasks by state and by type and state."""

    name: str
    paused: bool
    concurrency_max: int
    counts: dict[str, int]
    types: dict[str, dict[str, int]]
    is_count_exact: bool


def task(message: task_pb2.Task) -> ShownTask:
    """Show a task."""
    options = message.options
    return ShownTask(
        task_id=message.task_id,
        namespace=message.namespace_id,
        queue=message.task_queue,
        type=message.type,
        kind=task_pb2.TaskKind.Name(options.kind).removeprefix("TASK_KIND_"),
        state=task_state(message.state),
        priority=message.priority,
        attempt=message.attempt,
        version=message.version,
        failure_count=message.failure_count,
        interruption_count=message.interruption_count,
        labels=dict(message.labels),
        **_asked(options),
        **_happened(message),
        **_relations(message),
        **_instants(message),
        **_payload("input", message.input, options.encoding),
        **_output(message),
        damaged=list(message.damaged) or None,
        **_payload("heartbeat_details", message.heartbeat_details, options.encoding),
    )


def _happened(message: task_pb2.Task) -> dict[str, Any]:
    encoding = message.options.encoding
    percent = message.progress_percent if message.HasField("progress_percent") else None
    return {
        "failure_reason": message.failure_reason or None,
        "error": _failure(message.error, encoding) if message.HasField("error") else None,
        "progress_percent": percent,
        "progress_message": message.progress_message or None,
        "cancel_reason": message.cancel_reason or None,
    }


def _relations(message: task_pb2.Task) -> dict[str, Any]:
    return {
        "worker_id": message.worker_id or None,
        "idempotency_key": message.idempotency_key or None,
        "run_id": message.run_id or None,
        "parent_id": message.parent_id or None,
        "retry_of": message.retry_of or None,
    }


def enqueued(message: task_service_pb2.EnqueueResult) -> ShownEnqueued:
    """Show what became of a new task."""
    return ShownEnqueued(
        task_id=message.task_id, state=task_state(message.state), is_new=message.is_new
    )


def _asked(options: task_pb2.TaskOptions) -> dict[str, Any]:
    retry = options.retry
    return {
        "encoding": options.encoding,
        "schedule_to_start_ms": options.schedule_to_start_ms or None,
        "schedule_to_close_ms": options.schedule_to_close_ms or None,
        "start_to_close_ms": options.start_to_close_ms or None,
        "heartbeat_timeout_ms": options.heartbeat_timeout_ms or None,
        "retry": ShownRetry(
            initial_interval_ms=retry.initial_interval_ms,
            backoff_coefficient=retry.backoff_coefficient,
            maximum_interval_ms=retry.maximum_interval_ms,
            maximum_attempts=retry.maximum_attempts,
            non_retryable_error_types=list(retry.non_retryable_error_types),
        ),
    }


def _instants(message: task_pb2.Task) -> dict[str, Any]:
    return {
        "created_at": instant_text(message.created_at_ms),
        "run_at": instant_text(message.run_at_ms),
        "handed_at": _instant(message.handed_at_ms),
        "started_at": _instant(message.started_at_ms),
        "heartbeat_at": _instant(message.heartbeat_at_ms),
        "finished_at": _instant(message.finished_at_ms),
        "cancel_requested_at": _instant(message.cancel_requested_at_ms),
    }


def task_state(number: task_pb2.TaskState.ValueType) -> str:
    """Return the name of a state."""
    return task_pb2.TaskState.Name(number).removeprefix("TASK_STATE_")


def _instant(at_ms: int) -> str | None:
    return instant_text(at_ms) if at_ms else None


def _payload(name: str, data: bytes, encoding: str) -> dict[str, Any]:
    """Return the field that shows a payload, if there is one."""
    if not data:
        return {}
    if encoding == _JSON and _is_json(data):
        return {name: msgspec.Raw(data)}
    return {f"{name}_base64": base64.b64encode(data).decode()}


def _output(message: task_pb2.Task) -> dict[str, Any]:
    """Return the output; bytes come with their encoding, JSON speaks for itself."""
    fields = _payload("output", message.output, message.output_encoding)
    if "output_base64" in fields:
        fields["output_encoding"] = message.output_encoding or None
    return fields


def _is_json(data: bytes) -> bool:
    try:
        _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _failure(error: task_pb2.TaskError, encoding: str) -> ShownFailure:
    delay = error.next_retry_delay_ms if error.HasField("next_retry_delay_ms") else None
    return ShownFailure(
        message=error.message,
        category=task_pb2.ErrorCategory.Name(error.category).removeprefix("ERROR_CATEGORY_"),
        type=error.type or None,
        retryable=error.retryable if error.HasField("retryable") else None,
        next_retry_delay_ms=delay,
        stack_trace=error.stack_trace or None,
        **_payload("details", error.details, encoding),
    )


def attempt(message: task_pb2.Attempt) -> ShownAttempt:
    """Show one hand-out of a task."""
    return ShownAttempt(
        attempt=message.number,
        handed_at=instant_text(message.handed_at_ms),
        worker_id=message.worker_id or None,
        ended_at=_instant(message.ended_at_ms),
        outcome=message.outcome.upper() or None,
        error=_failure(message.error, _JSON) if message.HasField("error") else None,
    )


def worker(message: worker_pb2.Worker, now_ms: int) -> ShownWorker:
    """Show a worker. Its instance key stays unseen: whoever knows it can take its place."""
    status = worker_pb2.WorkerStatus.Name(message.status).removeprefix("WORKER_STATUS_")
    health = worker_pb2.WorkerHealth.Name(message.health).removeprefix("WORKER_HEALTH_")
    held = message.held_count if message.HasField("held_count") else message.active_count
    return ShownWorker(
        worker_id=message.worker_id,
        namespace=message.namespace_id,
        queue=message.task_queue,
        status=status,
        mode=worker_pb2.WorkerMode.Name(message.mode).removeprefix("WORKER_MODE_"),
        types=list(message.workflow_types),
        max_concurrent=message.max_concurrent,
        registered_at=_timestamp(message.registered_at),
        health=None if health == "UNSPECIFIED" else health,
        held_count=held,
        lease=_lease(message),
        lease_left_ms=message.lease_until_ms - now_ms if message.lease_until_ms else None,
        may_stop=status == "OFFLINE" or (status == "DRAINING" and not held),
        total_completed=message.total_completed,
        total_failed=message.total_failed,
        labels=dict(message.labels),
        session_no=message.session_no,
        drain_deadline_at=_instant(message.drain_deadline_at_ms),
        ended_at=_instant(message.ended_at_ms),
        end_reason=message.end_reason or None,
        **_identity(message),
    )


def _identity(message: worker_pb2.Worker) -> dict[str, Any]:
    return {
        "name": message.name or None,
        "hostname": message.hostname or None,
        "pid": message.pid or None,
        "version": message.version or None,
    }


def _lease(message: worker_pb2.Worker) -> ShownLease | None:
    if not message.lease_until_ms:
        return None
    beat = message.HasField("last_heartbeat_at")
    return ShownLease(
        until=instant_text(message.lease_until_ms),
        duration_ms=message.lease_duration_ms,
        last_heartbeat_at=_timestamp(message.last_heartbeat_at) if beat else None,
    )


def _timestamp(stamp: Timestamp) -> str:
    return instant_text(stamp.ToMilliseconds())


def queue(message: admin_service_pb2.Queue) -> ShownQueue:
    """Show a queue with the sums of its types."""
    types = {each.type: dict(each.counts) for each in message.types}
    counts: dict[str, int] = {}
    for by_state in types.values():
        for state, count in by_state.items():
            counts[state] = counts.get(state, 0) + count
    return ShownQueue(
        name=message.name,
        paused=message.is_paused,
        concurrency_max=message.concurrency_max,
        counts=counts,
        types=types,
        is_count_exact=message.is_count_exact,
    )
