"""From what a client asks for to a task: checks, defaults and the content of a request."""

from __future__ import annotations

import hashlib

import msgspec

from tenure.core import check, deadline, retry
from tenure.core.limits import DELIVERY_TIMEOUT_MAX_MS, TEXT_BYTES_MAX
from tenure.core.task_record import (
    NO_PROGRESS,
    Line,
    NewTask,
    Progress,
    Spec,
    Task,
    TaskKind,
    TaskState,
)
from tenure.errors import InvalidArgument

# Equal labels in another order are the same content; maps of the wire have no order.
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


def check_new(new: NewTask) -> None:
    """Raise the typed error for the first thing that is wrong with a request."""
    check.task_id(new.id, "taskId")
    check.name(new.type, "type")
    check.name(new.queue, "queue")
    if new.input is not None:
        check.payload(new.input, "input")
    check.priority(new.priority)
    if new.run_at_ms:
        check.instant_ms(new.run_at_ms, "runAt")
    _check_durations(new)
    retry.check_retry(new.retry)
    if new.encoding:
        check.name(new.encoding, "encoding")
    if new.idempotency_key:
        check.text(new.idempotency_key, "idempotencyKey", bytes_max=TEXT_BYTES_MAX)
    if new.labels:
        check.labels(new.labels)
    if new.resources:
        check.labels(new.resources, "resources")
    for field, value in (
        ("runId", new.run_id),
        ("parentId", new.parent_id),
        ("retryOf", new.retry_of),
    ):
        if value:
            check.task_id(value, field)


def _check_durations(new: NewTask) -> None:
    durations = (
        ("scheduleToStartMs", new.schedule_to_start_ms),
        ("scheduleToCloseMs", new.schedule_to_close_ms),
        ("startToCloseMs", new.start_to_close_ms),
        ("heartbeatTimeoutMs", new.heartbeat_timeout_ms),
        ("heartbeatIntervalMs", new.heartbeat_interval_ms),
    )
    for field, value in durations:
        if value != 0:
            check.duration_ms(value, field)
    check.duration_ms(new.cancel_grace_ms, "cancelGracePeriodMs")
    check.integer(new.delivery_timeout_ms, "deliveryTimeoutMs", 1, DELIVERY_TIMEOUT_MAX_MS)
    if new.kind is TaskKind.ACTIVITY and not (new.start_to_close_ms or new.schedule_to_close_ms):
        message = "An activity needs startToCloseMs or scheduleToCloseMs."
        raise InvalidArgument(message, field="startToCloseMs")
    interval_ms = new.heartbeat_interval_ms
    if interval_ms and 0 < new.heartbeat_timeout_ms < 2 * interval_ms:
        message = "heartbeatTimeoutMs must be at least twice heartbeatIntervalMs."
        raise InvalidArgument(message, field="heartbeatTimeoutMs")


def content_digest(new: NewTask) -> bytes:
    """Return what two requests with one idempotency key must share: everything but the id."""
    content = msgspec.structs.replace(new, id="", retry_of="")
    return hashlib.blake2b(_ENCODER.encode(content), digest_size=16).digest()


def create(new: NewTask, *, namespace: str, now_ms: int) -> Task:
    """Return the task that a checked request becomes."""
    run_at_ms = max(new.run_at_ms, now_ms)
    is_ready = run_at_ms <= now_ms
    close_ms = new.schedule_to_close_ms
    spec = Spec(
        kind=new.kind,
        schedule_to_start_ms=new.schedule_to_start_ms,
        schedule_to_close_ms=close_ms,
        start_to_close_ms=new.start_to_close_ms,
        heartbeat_timeout_ms=new.heartbeat_timeout_ms,
        heartbeat_interval_ms=new.heartbeat_interval_ms,
        cancel_grace_ms=new.cancel_grace_ms,
        delivery_timeout_ms=new.delivery_timeout_ms,
        close_at_ms=run_at_ms + close_ms if close_ms else 0,
        retry=new.retry,
        encoding=new.encoding,
        idempotency_key=new.idempotency_key,
        resources=new.resources,
        run_id=new.run_id,
        parent_id=new.parent_id,
        retry_of=new.retry_of,
    )
    task = Task(
        id=new.id,
        namespace=namespace,
        queue=new.queue,
        type=new.type,
        spec=spec,
        state=TaskState.PENDING,
        line=Line.FRESH if is_ready else Line.NONE,
        created_at_ms=now_ms,
        run_at_ms=run_at_ms,
        progress=_first_progress(new, run_at_ms),
        priority=new.priority,
        labels=new.labels or None,
        input=new.input,
    )
    if is_ready and not new.schedule_to_start_ms and not close_ms:
        return task
    return msgspec.structs.replace(task, due_at_ms=deadline.next_due_ms(task))


def _first_progress(new: NewTask, run_at_ms: int) -> Progress:
    return Progress(ready_at_ms=run_at_ms) if new.schedule_to_start_ms else NO_PROGRESS


def again(old: Task, *, task_id: str, now_ms: int) -> Task:
    """Return a new task that does what a finished one was asked to do."""
    spec = old.spec
    close_ms = spec.schedule_to_close_ms
    close_at_ms = now_ms + close_ms if close_ms else 0
    fresh = Task(
        id=task_id,
        namespace=old.namespace,
        queue=old.queue,
        type=old.type,
        spec=msgspec.structs.replace(
            spec,
            close_at_ms=close_at_ms,
            idempotency_key="",
            retry_of=old.id,
        ),
        state=TaskState.PENDING,
        line=Line.FRESH,
        created_at_ms=now_ms,
        run_at_ms=now_ms,
        progress=Progress(ready_at_ms=now_ms) if spec.schedule_to_start_ms else NO_PROGRESS,
        priority=old.priority,
        labels=old.labels,
        input=old.input,
    )
    return msgspec.structs.replace(fresh, due_at_ms=deadline.next_due_ms(fresh))
