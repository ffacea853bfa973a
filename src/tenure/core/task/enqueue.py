"""From the request of a client to a task: checks, defaults and the content of a request."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core import check
from tenure.core.limits import (
    DELIVERY_TIMEOUT_MAX_MS,
    PAYLOAD_BYTES_MAX,
    PRIORITY_DEFAULT,
    SPECS_REMEMBERED_MAX,
    TEXT_BYTES_MAX,
)
from tenure.core.task import deadline, retry
from tenure.core.task.record import (
    NO_PROGRESS,
    AttemptProgress,
    Line,
    NewTask,
    Spec,
    Task,
    TaskKind,
    TaskState,
)
from tenure.errors import InvalidArgument, wire_name

# Until Python 3.12 members of an enum are found by a Python function.
_PENDING: Final = TaskState.PENDING
_FRESH: Final = Line.FRESH
_NO_LINE: Final = Line.NONE
# What two requests with one idempotency key must share, in addition to labels, settings and input.
_COMPARED: Final = ("type", "queue", "priority")
_SPEC_NAMES: Final = {"cancel_grace_ms": "cancelGracePeriodMs"}
# MessagePack's headers of a map with up to 15 entries, and with up to 65,535.
_SHORT_MAP: Final = 0x80
_LONG_MAP: Final = b"\xde"
# Equal labels in another order are the same content; maps of the wire have no order.
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
# Valid specs, by their identity. Holding them keeps the identities unique.
_good_specs: dict[int, Spec] = {}


def check_new(new: NewTask) -> None:
    """Raise the typed error for the first invalid part of a request."""
    check_request(new)
    if _good_specs.get(id(new.spec)) is not new.spec:
        _check_activity(new.spec)


def _check_activity(spec: Spec) -> None:
    """Check a spec that is not remembered as valid."""
    if spec.kind is not TaskKind.ACTIVITY:
        message = "A run is not enqueued, it is started."
        raise InvalidArgument(message, field="options.kind")
    check_spec(spec)
    if len(_good_specs) >= SPECS_REMEMBERED_MAX:
        _good_specs.clear()
    _good_specs[id(spec)] = spec


def check_request(new: NewTask) -> None:
    """Raise the typed error for the first invalid part of a request, settings aside."""
    check.task_id(new.id, "taskId")
    check.name(new.type, "type")
    check.name(new.queue, "queue")
    data = new.input
    if data is not None and (type(data) is not bytes or len(data) > PAYLOAD_BYTES_MAX):
        check.payload(data, "input")
    if new.priority != PRIORITY_DEFAULT:
        check.priority(new.priority)
    if new.run_at_ms != 0:
        check.instant_ms(new.run_at_ms, "runAt")
    if new.labels:
        check.labels(new.labels)
    if new.idempotency_key:
        check.text(new.idempotency_key, "idempotencyKey", bytes_max=TEXT_BYTES_MAX)


def check_spec(spec: Spec) -> None:
    """Raise the typed error for the first invalid setting of a task."""
    _check_durations(spec)
    retry.check_retry(spec.retry)
    if spec.encoding:
        check.name(spec.encoding, "encoding")
    if spec.resources:
        check.labels(spec.resources, "resources")
    if spec.retry_of:
        check.task_id(spec.retry_of, "retryOf")


def _check_durations(spec: Spec) -> None:
    durations = (
        ("scheduleToStartMs", spec.schedule_to_start_ms),
        ("scheduleToCloseMs", spec.schedule_to_close_ms),
        ("startToCloseMs", spec.start_to_close_ms),
        ("heartbeatTimeoutMs", spec.heartbeat_timeout_ms),
        ("heartbeatIntervalMs", spec.heartbeat_interval_ms),
    )
    for field, value in durations:
        if value != 0:
            check.duration_ms(value, field)
    check.duration_ms(spec.cancel_grace_ms, "cancelGracePeriodMs")
    check.integer(spec.delivery_timeout_ms, "deliveryTimeoutMs", 1, DELIVERY_TIMEOUT_MAX_MS)
    if spec.kind is TaskKind.ACTIVITY and not (spec.start_to_close_ms or spec.schedule_to_close_ms):
        message = "An activity needs startToCloseMs or scheduleToCloseMs."
        raise InvalidArgument(message, field="startToCloseMs")
    interval_ms = spec.heartbeat_interval_ms
    if interval_ms and 0 < spec.heartbeat_timeout_ms < 2 * interval_ms:
        message = "heartbeatTimeoutMs must be at least twice heartbeatIntervalMs."
        raise InvalidArgument(message, field="heartbeatTimeoutMs")


def content_digest(new: NewTask) -> bytes:
    """Return what two requests with one idempotency key must share.

    The id and the run time may differ: the same delay, sent again, ends at another instant.
    """
    content = replace(new, id="", run_at_ms=0, labels=new.labels or None, spec=_settings(new.spec))
    return hashlib.blake2b(_encode(content), digest_size=16).digest()


def _settings(spec: Spec) -> msgspec.Raw:
    """Encode a spec in the same way whatever fields another version has.

    The header of a map is short if the type has at most 15 fields, whatever is set. Stored digests
    have the long one, from when a spec had more.
    """
    data = _encode(spec)
    assert data[0] & 0xF0 == _SHORT_MAP
    return msgspec.Raw(_LONG_MAP + (data[0] & 0x0F).to_bytes(2, "big") + data[1:])


def differing_fields(new: NewTask, first: NewTask | Task, first_digest: bytes) -> list[str]:
    """Return the fields in which a request differs from the first one with its idempotency key.

    The input of the first one is not needed: if all else is equal, the digests show it.
    """
    spec = replace(first.spec, idempotency_key="", close_at_ms=0)
    fields = [name for name in _COMPARED if getattr(new, name) != getattr(first, name)]
    if (new.labels or None) != (first.labels or None):
        fields.append("labels")
    fields += [
        _SPEC_NAMES.get(name) or wire_name(name)
        for name in Spec.__struct_fields__
        if getattr(new.spec, name) != getattr(spec, name)
    ]
    same = {name: getattr(first, name) for name in (*_COMPARED, "labels")}
    if content_digest(replace(new, spec=spec, **same)) != first_digest:
        fields.append("input")
    return fields


def create(new: NewTask, *, namespace: str, now_ms: int) -> Task:
    """Return the task that a checked request becomes."""
    run_at_ms = new.run_at_ms
    is_ready = run_at_ms <= now_ms
    if is_ready:
        run_at_ms = now_ms
    spec = new.spec
    if new.idempotency_key:
        spec = replace(spec, idempotency_key=new.idempotency_key)
    if spec.schedule_to_close_ms:
        spec = replace(spec, close_at_ms=run_at_ms + spec.schedule_to_close_ms)
    task = Task(
        id=new.id,
        namespace=namespace,
        queue=new.queue,
        type=new.type,
        spec=spec,
        state=_PENDING,
        line=_FRESH if is_ready else _NO_LINE,
        created_at_ms=now_ms,
        run_at_ms=run_at_ms,
        progress=AttemptProgress(ready_at_ms=run_at_ms)
        if spec.schedule_to_start_ms
        else NO_PROGRESS,
        priority=new.priority,
        labels=new.labels or None,
        input=new.input,
    )
    if is_ready and not spec.schedule_to_start_ms and not spec.close_at_ms:
        return task
    return replace(task, due_at_ms=deadline.next_due_ms(task))


def again(old: Task, *, task_id: str, now_ms: int) -> Task:
    """Return a new task with the request of a finished one.

    It keeps the idempotency key of its user, so that work under this key is not done again; a
    client that enqueues with this key still gets the first task.
    """
    spec = old.spec
    close_ms = spec.schedule_to_close_ms
    close_at_ms = now_ms + close_ms if close_ms else 0
    fresh = Task(
        id=task_id,
        namespace=old.namespace,
        queue=old.queue,
        type=old.type,
        spec=replace(spec, close_at_ms=close_at_ms, retry_of=old.id),
        state=TaskState.PENDING,
        line=Line.FRESH,
        created_at_ms=now_ms,
        run_at_ms=now_ms,
        progress=AttemptProgress(ready_at_ms=now_ms) if spec.schedule_to_start_ms else NO_PROGRESS,
        priority=old.priority,
        labels=old.labels,
        input=old.input,
    )
    return replace(fresh, due_at_ms=deadline.next_due_ms(fresh))
