"""Records of the wire as plain objects, with the names that they have in HTTP/JSON.

What is not there is left out. Payloads are shown as JSON where they are JSON, else as base64.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.cli.show.text import instant_text
from tenure.v1 import (
    admin_service_pb2,
    task_pb2,
    task_service_pb2,
    worker_pb2,
    workflow_service_pb2,
)

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
    is_pause_requested: bool | None = None
    labels: dict[str, str]
    encoding: str
    schedule_to_start_ms: int | None = None
    schedule_to_close_ms: int | None = None
    start_to_close_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    retry: ShownRetry
    idempotency_key: str | None = None
    schedule_id: str | None = None
    fire_at: str | None = None
    run_id: str | None = None
    parent_id: str | None = None
    root_run_id: str | None = None
    step_key: str | None = None
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

    @property
    def is_waiting(self) -> bool:
        """Tell whether no worker has it, and it has not ended."""
        return self.state in {"PENDING", "PAUSED"}

    @property
    def is_run(self) -> bool:
        """Tell whether it is a run of a workflow, which has commands of its own."""
        return self.kind == "WORKFLOW"

    @property
    def noun(self) -> str:
        """Return what it is called; the commands about it have the plural."""
        return "run" if self.is_run else "task"

    @property
    def title(self) -> str:
        """Return the beginning of a sentence about it."""
        return f"{self.noun.capitalize()} {self.task_id}"


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


class ShownSeat(Shown, frozen=True):
    """Which server calls a served worker, and what it saw last."""

    server_id: str | None = None
    taken_at: str | None = None
    last_call_at: str | None = None
    call_duration_ms: int = 0
    call_error: str | None = None
    failure_count: int = 0
    unconfirmed_count: int = 0
    kill_count: int = 0


class ShownWorker(Shown, frozen=True, kw_only=True):
    """A worker; lease and health are there while it is active, totals also when it is offline."""

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
    oldest_held_at: str | None = None
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
    address: str | None = None
    seat: ShownSeat | None = None


class ShownHeld(Shown, frozen=True):
    """A live attempt that names a worker."""

    task_id: str
    type: str
    state: str
    attempt: int
    handed_at: str


class ShownStopBlocker(Shown, frozen=True):
    """A worker that must not be stopped yet."""

    worker_id: str
    reason: str
    held_count: int


class ShownStopCheck(Shown, frozen=True, kw_only=True):
    """Whether workers may be stopped without interrupting anything, and what shows it."""

    is_safe: bool
    reason: str
    checked_at: str
    held_count: int
    unconfirmed_count: int
    is_held_count_exact: bool
    worker_count: int
    safe_count: int
    committed_at: str | None = None
    audit_id: str | None = None
    oldest_held_at: str | None = None
    last_result_at: str | None = None
    clears_at: str | None = None
    blockers: list[ShownHeld]
    workers: list[ShownStopBlocker]


class ShownPerMinute(Shown, frozen=True):
    """What happened to the tasks of a queue in the last minute."""

    enqueued: int
    started: int
    succeeded: int
    failed: int
    cancelled: int
    lost: int


class ShownWait(Shown, frozen=True):
    """About how long 50, 95 and 99 of 100 tasks waited at most."""

    p50: int
    p95: int
    p99: int


class ShownQueue(Shown, frozen=True):
    """A queue: its settings, and its live tasks by state and by type and state."""

    name: str
    paused: bool
    concurrency_max: int
    counts: dict[str, int]
    types: dict[str, dict[str, int]]
    is_count_exact: bool
    is_type_count_exact: bool
    per_minute: ShownPerMinute
    wait_ms: ShownWait | None = None
    held: int | None = None
    worker_count: int | None = None
    slots: int | None = None
    oldest_waiting_ms: int | None = None
    sample_at: str | None = None

    @property
    def state(self) -> str:
        """Whether its tasks are handed out, in the words of the events."""
        return queue_state(is_paused=self.paused)


def queue_state(*, is_paused: bool) -> str:
    """Return the state of a queue."""
    return "PAUSED" if is_paused else "ACTIVE"


def copied(kind: type[Shown], message: Message) -> dict[str, Any]:
    """Return the fields of a message that a record has too; an instant ``x_at`` is ``x_at_ms``.

    What is empty is None where the record can do without it.
    """
    known = message.DESCRIPTOR.fields_by_name
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        name = field.name
        if name in known:
            is_shown = field.required or _is_there(message, known[name])
            found[name] = _plain(getattr(message, name)) if is_shown else None
        elif f"{name}_ms" in known and name.endswith("_at"):
            at_ms = getattr(message, f"{name}_ms")
            found[name] = instant_text(at_ms) if at_ms or field.required else None
    return found


def _is_there(message: Message, field: FieldDescriptor) -> bool:
    """Tell whether a field says something; a number may be said to be 0."""
    value = getattr(message, field.name)
    if isinstance(value, int | float) and field.has_presence:
        return message.HasField(field.name)
    return bool(value)


def _plain(value: object) -> object:
    """Return a map or a list of protobuf as one of Python."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return value


def task(message: task_pb2.Task) -> ShownTask:
    """Show a task."""
    options = message.options
    encoding = options.encoding
    fields = {
        **copied(ShownTask, options),
        **copied(ShownTask, message),
        **payload_fields("input", message.input, encoding),
        **output_fields(message),
        **payload_fields("heartbeat_details", message.heartbeat_details, encoding),
        "namespace": message.namespace_id,
        "queue": message.task_queue,
        "kind": task_pb2.TaskKind.Name(options.kind).removeprefix("TASK_KIND_"),
        "state": task_state(message.state),
        "retry": ShownRetry(**copied(ShownRetry, options.retry)),
        "error": failure(message.error, encoding) if message.HasField("error") else None,
    }
    return ShownTask(**fields)


def enqueued(message: task_service_pb2.EnqueueResult) -> ShownEnqueued:
    """Show what became of a new task."""
    return ShownEnqueued(
        task_id=message.task_id, state=task_state(message.state), is_new=message.is_new
    )


def task_state(number: task_pb2.TaskState.ValueType) -> str:
    """Return the name of a state."""
    return task_pb2.TaskState.Name(number).removeprefix("TASK_STATE_")


def payload_fields(name: str, data: bytes, encoding: str) -> dict[str, Any]:
    """Return the field that shows a payload, if there is one."""
    if not data:
        return {name: None}
    if encoding == _JSON and _is_json(data):
        return {name: msgspec.Raw(data)}
    return {name: None, f"{name}_base64": base64.b64encode(data).decode()}


def output_fields(message: task_pb2.Task | workflow_service_pb2.WorkflowRun) -> dict[str, Any]:
    """Return the output; bytes come with their encoding, JSON speaks for itself."""
    fields = payload_fields("output", message.output, message.output_encoding)
    is_bytes = "output_base64" in fields
    return {**fields, "output_encoding": (message.output_encoding or None) if is_bytes else None}


def _is_json(data: bytes) -> bool:
    try:
        _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def failure(error: task_pb2.TaskError, encoding: str) -> ShownFailure:
    """Show why something failed."""
    category = task_pb2.ErrorCategory.Name(error.category).removeprefix("ERROR_CATEGORY_")
    fields = copied(ShownFailure, error) | payload_fields("details", error.details, encoding)
    return ShownFailure(**{**fields, "category": category})


def attempt(message: task_pb2.Attempt) -> ShownAttempt:
    """Show one hand-out of a task."""
    fields = {
        **copied(ShownAttempt, message),
        "outcome": message.outcome.upper() or None,
        "error": failure(message.error, _JSON) if message.HasField("error") else None,
    }
    return ShownAttempt(**fields)


def worker(message: worker_pb2.Worker, now_ms: int) -> ShownWorker:
    """Show a worker. Its instance key stays unseen: whoever knows it can take its place."""
    status = worker_pb2.WorkerStatus.Name(message.status).removeprefix("WORKER_STATUS_")
    health = worker_pb2.WorkerHealth.Name(message.health).removeprefix("WORKER_HEALTH_")
    fields = {
        **copied(ShownWorker, message),
        "namespace": message.namespace_id,
        "queue": message.task_queue,
        "status": status,
        "mode": worker_pb2.WorkerMode.Name(message.mode).removeprefix("WORKER_MODE_"),
        "types": list(message.workflow_types),
        "registered_at": timestamp(message.registered_at),
        "health": None if health == "UNSPECIFIED" else health,
        "lease": _lease(message),
        "lease_left_ms": message.lease_until_ms - now_ms if message.lease_until_ms else None,
        "seat": _seat(message.seat) if message.HasField("seat") else None,
    }
    return ShownWorker(**fields)


def _seat(message: worker_pb2.Seat) -> ShownSeat:
    return ShownSeat(
        server_id=message.server_id or None,
        taken_at=instant_text(message.taken_at_ms) if message.taken_at_ms else None,
        last_call_at=instant_text(message.call_at_ms) if message.call_at_ms else None,
        call_duration_ms=message.call_duration_ms,
        call_error=message.call_error or None,
        failure_count=message.failure_count,
        unconfirmed_count=message.unconfirmed_count,
        kill_count=message.kill_count,
    )


def stop_check(message: admin_service_pb2.CheckStopResponse) -> ShownStopCheck:
    """Show whether workers may be stopped."""
    fields = {
        **copied(ShownStopCheck, message),
        "blockers": [ShownHeld(**copied(ShownHeld, each)) for each in message.blockers],
        "workers": [ShownStopBlocker(**copied(ShownStopBlocker, each)) for each in message.workers],
    }
    return ShownStopCheck(**fields)


def _lease(message: worker_pb2.Worker) -> ShownLease | None:
    if not message.lease_until_ms:
        return None
    beat = message.HasField("last_heartbeat_at")
    return ShownLease(
        until=instant_text(message.lease_until_ms),
        duration_ms=message.lease_duration_ms,
        last_heartbeat_at=timestamp(message.last_heartbeat_at) if beat else None,
    )


def timestamp(stamp: Timestamp) -> str:
    """Return an instant as text."""
    return instant_text(stamp.ToMilliseconds())


def queue(message: admin_service_pb2.Queue) -> ShownQueue:
    """Show a queue; before the first sample of a server much is not known."""
    sampled: dict[str, Any] = {}
    if message.sample_at_ms:
        names = ("held", "worker_count", "slots", "oldest_waiting_ms")
        sampled = {name: getattr(message, name) for name in names}
        sampled["sample_at"] = instant_text(message.sample_at_ms)
    waits = message.HasField("wait_ms")
    return ShownQueue(
        name=message.name,
        paused=message.is_paused,
        concurrency_max=message.concurrency_max,
        counts=dict(message.counts),
        types={each.type: dict(each.counts) for each in message.types},
        is_count_exact=message.is_count_exact,
        is_type_count_exact=message.is_type_count_exact,
        per_minute=ShownPerMinute(**copied(ShownPerMinute, message.per_minute)),
        wait_ms=ShownWait(**copied(ShownWait, message.wait_ms)) if waits else None,
        **sampled,
    )
