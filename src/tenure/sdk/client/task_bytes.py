"""Requests to enqueue tasks, as bytes.

Building a protobuf message for each task costs ten times what it takes to join bytes. What the
tasks of one activity share is encoded once, by protobuf; id and input of each are put behind it.
Fields of a protobuf message may come in any order, and pieces of messages may be joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tenure.core.limits import PRIORITY_DEFAULT
from tenure.sdk.activity.option import Options
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb

_LENGTH_DELIMITED: Final = 2


def _tag(message: Any, field: str, wire_type: int) -> bytes:  # noqa: ANN401 (a class of messages)
    number: int = message.DESCRIPTOR.fields_by_name[field].number
    return bytes([number << 3 | wire_type])


_TASK: Final = _tag(pb.EnqueueTasksRequest, "tasks", _LENGTH_DELIMITED)
_INPUT: Final = _tag(task_pb2.NewTask, "input", _LENGTH_DELIMITED)
_RUN_AT: Final = _tag(task_pb2.NewTask, "run_at_ms", 0)
_ID_BYTES: Final = 36
_ID: Final = _tag(task_pb2.NewTask, "task_id", _LENGTH_DELIMITED) + bytes([_ID_BYTES])
_ENQUEUE: Final = _tag(pb.WatchTasksRequest, "enqueues", _LENGTH_DELIMITED)
_NUMBER: Final = _tag(pb.StreamedEnqueue, "number", 0)
_REQUEST: Final = _tag(pb.StreamedEnqueue, "request", _LENGTH_DELIMITED)
_WATCH: Final = _tag(pb.StreamedEnqueue, "watch", 0)
_SHORT: Final = 0x80


def shared_bytes(name: str, options: Options, wire_options: task_pb2.TaskOptions) -> bytes:
    """Return what all tasks of one type with the same options have in common."""
    message = task_pb2.NewTask(
        type=name,
        task_queue=options.queue,
        options=wire_options,
        labels=options.labels,
        idempotency_key=options.idempotency_key,
    )
    if options.priority != PRIORITY_DEFAULT:
        message.priority = options.priority
    return message.SerializeToString()


def task_bytes(shared: bytes, task_id: str, data: bytes, run_at_ms: int = 0) -> bytes:
    """Return one task as a field of a request."""
    parts = [shared, _ID, task_id.encode(), _INPUT, varint(len(data)), data]
    if run_at_ms:
        parts += (_RUN_AT, varint(run_at_ms))
    body = b"".join(parts)
    return b"".join((_TASK, varint(len(body)), body))


def request_bytes(
    namespace: str, tasks: Iterable[bytes], *, independent: bool, is_resend: bool
) -> bytes:
    """Return a request with tasks of ``task_bytes``."""
    head = pb.EnqueueTasksRequest(
        namespace_id=namespace, independent=independent, is_resend=is_resend
    )
    return b"".join((head.SerializeToString(), *tasks))


def streamed_bytes(number: int, request: bytes, *, watch: bool) -> bytes:
    """Return a request of ``request_bytes`` as a field of a frame of the client's stream."""
    parts = [_NUMBER, varint(number), _REQUEST, varint(len(request)), request]
    if watch:
        parts += (_WATCH, varint(1))
    body = b"".join(parts)
    return b"".join((_ENQUEUE, varint(len(body)), body))


def varint(number: int) -> bytes:
    """Return a number of 0 or more as protobuf writes it."""
    if number < _SHORT:
        return _ONE_BYTE[number]
    found = bytearray()
    while number >= _SHORT:
        found.append(number & 0x7F | _SHORT)
        number >>= 7
    found.append(number)
    return bytes(found)


_ONE_BYTE: Final = [bytes([number]) for number in range(_SHORT)]
