"""Runs as a client shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from tenure.core.limits import PRIORITY_DEFAULT
from tenure.core.run.status import RunStatus
from tenure.sdk.failure import RemoteError
from tenure.sdk.instant import datetime_of
from tenure.sdk.payload import BYTES, JSON, Converter, Payload
from tenure.sdk.progress import TaskProgress
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb

_PREFIX: Final = "WORKFLOW_STATUS_"
_Count = Literal["open_child_count", "entry_count", "journal_bytes"]
_STATUSES: Final[dict[int, RunStatus]] = {
    number: RunStatus(name.removeprefix(_PREFIX).lower())
    for name, number in pb.WorkflowStatus.items()
    if number
}


class RunWait(msgspec.Struct, frozen=True):
    """Something that a run waits for: a child, a timer, a signal, or the next try of a step.

    ``site`` is where in its code: file and line of the call.
    """

    kind: str
    key: str
    detail: str = ""
    since: datetime | None = None
    site: str = ""


class RunGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The items of a ``ctx.map`` that has not ended: so many in all, stored, open, and failed."""

    key: str
    type: str
    total: int
    spawned: int
    open_count: int
    failed: int


class RunDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands. Instants are the server's; None means not yet.

    ``id`` is the one that its user chose, ``parent_id`` the run that made it, and ``root_run_id``
    the first of that tree. ``state`` is what the run has published. ``park_error`` says why a
    parked run waits, and ``wake_at`` when it is tried again; a run that sleeps wakes up then. In
    lists ``input``, ``output``, ``state`` and the size of the journal are left out. ``damaged``
    names the parts that the server left out because their stored data has changed.
    """

    run_id: str
    type: str
    queue: str
    namespace: str
    status: RunStatus
    priority: int = PRIORITY_DEFAULT
    attempt: int = 0
    generation: int = 0
    worker_id: str = ""
    labels: dict[str, str] = {}
    idempotency_key: str = ""
    id: str = ""
    parent_id: str = ""
    root_run_id: str = ""
    retry_of: str = ""
    schedule_id: str = ""
    fire_at: datetime | None = None
    input: Payload | None = None
    output: Payload | None = None
    state: Payload | None = None
    error: RemoteError | None = None
    failure_reason: str = ""
    cancel_reason: str = ""
    waits: tuple[RunWait, ...] = ()
    wait_count: int = 0
    park_error: RemoteError | None = None
    park_count: int = 0
    progress: TaskProgress = TaskProgress()
    groups: tuple[RunGroup, ...] = ()
    open_child_count: int | None = None
    entry_count: int | None = None
    journal_bytes: int | None = None
    created_at: datetime | None = None
    run_at: datetime | None = None
    begun_at: datetime | None = None
    wake_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    is_pause_requested: bool = False
    damaged: tuple[str, ...] = ()


def run_description(run: pb.WorkflowRun, converter: Converter) -> RunDescription:
    """Show a run."""
    encoding = run.options.encoding
    percent = run.progress_percent if run.HasField("progress_percent") else None
    return RunDescription(
        run_id=run.run_id,
        type=run.workflow_type,
        queue=run.task_queue,
        namespace=run.namespace_id,
        status=status_of(run.status),
        priority=run.priority,
        attempt=run.attempts,
        generation=run.generation,
        worker_id=run.worker_id,
        labels=dict(run.labels),
        idempotency_key=run.idempotency_key,
        id=run.external_id,
        parent_id=run.parent_id,
        root_run_id=run.root_run_id,
        retry_of=run.retry_of,
        schedule_id=run.schedule_id,
        fire_at=datetime_of(run.fire_at.ToMilliseconds()),
        input=Payload(encoding, run.input) if run.input else None,
        output=Payload(run.output_encoding or encoding, run.output) if run.output else None,
        state=published(run),
        error=RemoteError(run.error, converter) if run.HasField("error") else None,
        failure_reason=run.failure_reason,
        cancel_reason=run.cancel_reason,
        waits=tuple(_wait(each) for each in run.waits),
        wait_count=run.wait_count,
        park_error=RemoteError(run.park_error, converter) if run.HasField("park_error") else None,
        park_count=run.park_count,
        progress=TaskProgress(percent, run.progress_message),
        groups=tuple(_group(each) for each in run.groups),
        open_child_count=_count(run, "open_child_count"),
        entry_count=_count(run, "entry_count"),
        journal_bytes=_count(run, "journal_bytes"),
        created_at=_instant(run, "created_at"),
        run_at=_instant(run, "run_at"),
        begun_at=_instant(run, "begun_at"),
        wake_at=_instant(run, "wake_up_at"),
        finished_at=_instant(run, "finished_at"),
        cancel_requested_at=_instant(run, "cancel_requested_at"),
        is_pause_requested=run.is_pause_requested,
        damaged=tuple(run.damaged),
    )


def _count(run: pb.WorkflowRun, name: _Count) -> int | None:
    """Return a number that lists leave out."""
    count: int = getattr(run, name)
    return count if run.HasField(name) else None


def _group(group: task_pb2.OpenGroup) -> RunGroup:
    return RunGroup(
        key=group.key,
        type=group.type,
        total=group.total,
        spawned=group.spawned,
        open_count=group.open_count,
        failed=group.failed,
    )


def published(run: pb.WorkflowRun) -> Payload | None:
    """Return what a run has published; it travels as its input does."""
    if not run.HasField("state_value"):
        return None
    encoding = run.options.encoding
    return Payload(JSON if encoding == BYTES else encoding, run.state_value)


def status_of(number: int) -> RunStatus:
    """Return the status of a number of the protocol."""
    return _STATUSES[number]


def status_name(status: RunStatus | str | None) -> str:
    """Return the name of a status in the protocol; a ``ValueError`` lists them."""
    if status is None:
        return ""
    try:
        return RunStatus(status.lower()).name
    except ValueError:
        known = ", ".join(RunStatus)
        raise ValueError(f"{status!r} is not a status of a run. They are: {known}.") from None


def _wait(wait: task_pb2.Wait) -> RunWait:
    return RunWait(wait.kind, wait.key, wait.detail, datetime_of(wait.since_ms), wait.site)


def _instant(run: pb.WorkflowRun, field: str) -> datetime | None:
    return datetime_of(getattr(run, field).ToMilliseconds())
