"""Runs and the entries of their journals as plain objects, with their names in HTTP/JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.cli.show.text import instant_text
from tenure.cli.show.view import (
    Shown,
    ShownFailure,
    ShownRetry,
    copied,
    failure,
    output_fields,
    payload_fields,
    task_state,
    timestamp,
)
from tenure.v1 import task_pb2, workflow_service_pb2


class ShownStarted(Shown, frozen=True):
    """A run that was started, or that was there already."""

    run_id: str
    status: str
    is_new: bool
    content_differs: bool = False


class ShownRetried(Shown, frozen=True):
    """A run that was made from a finished one."""

    run_id: str
    retry_of: str
    kept_entries: int


class ShownWait(Shown, frozen=True):
    """Something that a run waits for."""

    kind: str
    key: str
    since: str | None = None
    detail: str | None = None
    site: str | None = None


class ShownGroup(Shown, frozen=True):
    """Tasks that one call of a run has made, as far as they are."""

    group_id: str
    key: str
    index: int
    type: str
    total: int
    spawned: int
    open_count: int
    failed: int


class ShownOpenChild(Shown, frozen=True):
    """A task or a run that a run has made and that has not ended."""

    task_id: str
    key: str
    index: int
    type: str
    kind: str


class ShownRun(Shown, frozen=True, kw_only=True):
    """A run; in lists it comes without payloads and without the size of its journal."""

    run_id: str
    namespace: str
    queue: str
    type: str
    status: str
    priority: int
    attempt: int
    generation: int
    created_at: str
    run_at: str
    retry: ShownRetry
    begun_at: str | None = None
    finished_at: str | None = None
    wakes_at: str | None = None
    worker_id: str | None = None
    failure_reason: str | None = None
    error: ShownFailure | None = None
    waits: list[ShownWait] | None = None
    wait_count: int | None = None
    park_error: ShownFailure | None = None
    park_count: int | None = None
    progress_percent: float | None = None
    progress_message: str | None = None
    cancel_requested_at: str | None = None
    cancel_reason: str | None = None
    is_pause_requested: bool | None = None
    labels: dict[str, str]
    timeout_ms: int | None = None
    idempotency_key: str | None = None
    external_id: str | None = None
    schedule_id: str | None = None
    fire_at: str | None = None
    parent_id: str | None = None
    root_run_id: str | None = None
    step_key: str | None = None
    open_child_count: int | None = None
    groups: list[ShownGroup] | None = None
    retry_of: str | None = None
    encoding: str
    input: msgspec.Raw | None = None
    input_base64: str | None = None
    output: msgspec.Raw | None = None
    output_base64: str | None = None
    output_encoding: str | None = None
    state: msgspec.Raw | None = None
    state_base64: str | None = None
    entry_count: int | None = None
    journal_bytes: int | None = None
    damaged: list[str] | None = None

    @property
    def is_ended(self) -> bool:
        """Tell whether it does nothing any more."""
        return self.finished_at is not None

    @property
    def is_unheld(self) -> bool:
        """Tell whether it waits for a worker."""
        return self.status in {"PENDING", "PAUSED"}


class ShownChildEnd(Shown, frozen=True):
    """How a task or a run ended that the run had made."""

    task_id: str
    type: str
    state: str
    failure_reason: str | None = None


class ShownGroupEnd(Shown, frozen=True):
    """How a group of tasks ended."""

    group_id: str
    total: int
    succeeded: int
    failed: int
    cancelled: int


class ShownEntry(Shown, frozen=True, kw_only=True):
    """An entry of a journal; of a signal, output is its payload."""

    pos: int
    at: str
    kind: str
    key: str
    index: int | None = None
    attempt: int | None = None
    output: msgspec.Raw | None = None
    output_base64: str | None = None
    encoding: str | None = None
    error: ShownFailure | None = None
    attempts: int | None = None
    started_at: str | None = None
    took_ms: int | None = None
    fire_at: str | None = None
    next_at: str | None = None
    site: str | None = None
    signal_id: str | None = None
    sender: str | None = None
    child: ShownChildEnd | None = None
    group: ShownGroupEnd | None = None


def status_name(number: workflow_service_pb2.WorkflowStatus.ValueType) -> str:
    """Return the name of a status."""
    name = workflow_service_pb2.WorkflowStatus.Name(number)
    return name.removeprefix("WORKFLOW_STATUS_")


def started(message: workflow_service_pb2.StartWorkflowResponse) -> ShownStarted:
    """Show what became of a start."""
    return ShownStarted(
        message.run_id,
        status_name(message.status),
        is_new=not message.already_exists,
        content_differs=message.content_differs,
    )


def run(message: workflow_service_pb2.WorkflowRun) -> ShownRun:
    """Show a run."""
    options, encoding = message.options, message.options.encoding
    is_parked = message.HasField("park_error")
    fields = {
        **copied(ShownRun, message),
        **_instants(message),
        **payload_fields("input", message.input, encoding),
        **output_fields(message),
        **payload_fields("state", message.state_value, encoding),
        "namespace": message.namespace_id,
        "queue": message.task_queue,
        "type": message.workflow_type,
        "status": status_name(message.status),
        "attempt": message.attempts,
        "encoding": encoding,
        "timeout_ms": options.schedule_to_close_ms or None,
        "retry": ShownRetry(**copied(ShownRetry, options.retry)),
        "error": failure(message.error, encoding) if message.HasField("error") else None,
        "park_error": failure(message.park_error, encoding) if is_parked else None,
        "waits": [_wait(each) for each in message.waits] or None,
        "groups": [ShownGroup(**copied(ShownGroup, each)) for each in message.groups] or None,
    }
    return ShownRun(**fields)


def _instants(message: workflow_service_pb2.WorkflowRun) -> dict[str, str | None]:
    found: dict[str, Timestamp] = {
        "created_at": message.created_at,
        "run_at": message.run_at,
        "begun_at": message.begun_at,
        "finished_at": message.finished_at,
        "wakes_at": message.wake_up_at,
        "cancel_requested_at": message.cancel_requested_at,
        "fire_at": message.fire_at,
    }
    return {name: timestamp(each) if each.ByteSize() else None for name, each in found.items()}


def _wait(message: task_pb2.Wait) -> ShownWait:
    since = instant_text(message.since_ms) if message.since_ms else None
    detail, site = message.detail or None, message.site or None
    return ShownWait(message.kind, message.key, since, detail, site)


def open_child(message: task_pb2.OpenChild) -> ShownOpenChild:
    """Show a child that has not ended."""
    kind = task_pb2.TaskKind.Name(message.kind).removeprefix("TASK_KIND_")
    return ShownOpenChild(message.task_id, message.key, message.index, message.type, kind)


def entry(message: task_pb2.Entry) -> ShownEntry:
    """Show an entry of a journal."""
    content = message.content
    fields: dict[str, Any] = {
        **copied(ShownEntry, content),
        **payload_fields("output", content.output, content.encoding),
        "pos": message.pos,
        "at": instant_text(message.at_ms),
        "attempt": message.attempt or None,
        "kind": task_pb2.EntryKind.Name(content.kind).removeprefix("ENTRY_KIND_"),
        "error": failure(content.error, content.encoding) if content.HasField("error") else None,
        "signal_id": message.signal_id or None,
        "sender": message.sender or None,
        "child": _child_end(message.child) if message.HasField("child") else None,
        "group": _group_end(message.group) if message.HasField("group") else None,
    }
    return ShownEntry(**fields)


def _child_end(message: task_pb2.ChildEnd) -> ShownChildEnd:
    return ShownChildEnd(
        message.task_id, message.type, task_state(message.state), message.failure_reason or None
    )


def _group_end(message: task_pb2.GroupEnd) -> ShownGroupEnd:
    return ShownGroupEnd(**copied(ShownGroupEnd, message))
