"""Converts between rows and records. Both databases give the same columns in the same order.

Damaged data is never decoded: whatever is wrong with a row is raised, and ``damaged_row`` makes the
best possible record of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tenure.core.checksum import checksum, is_sound, is_version_sound, versioned
from tenure.core.limits import SPECS_REMEMBERED_MAX
from tenure.core.queue import Namespace, Queue
from tenure.core.run.record import RunLink
from tenure.core.task.attempt import Attempt, Outcome
from tenure.core.task.callback import CallbackAttempt
from tenure.core.task.record import NO_PROGRESS, AttemptProgress, Line, Spec, Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import EndReason, Worker, WorkerMode, WorkerStatus

# Columns come from the database driver untyped; this module gives them their types.
AnyRow = Sequence[Any]

_STATES: Final = {state.value: state for state in TaskState}
_LINES: Final = {line.value: line for line in Line}
_OUTCOMES: Final[dict[str | None, Outcome | None]] = {
    None: None,
    **{outcome.value: outcome for outcome in Outcome},
}

_encode = msgspec.msgpack.Encoder().encode
_decode_spec = msgspec.msgpack.Decoder(Spec).decode
_decode_progress = msgspec.msgpack.Decoder(AttemptProgress).decode
_decode_error = msgspec.msgpack.Decoder(ErrorInfo).decode
_decode_callback = msgspec.msgpack.Decoder(CallbackAttempt).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
DAMAGED_ERROR: Final = ErrorInfo(
    ErrorCategory.DATA_QUALITY, "The stored error is damaged.", type="DataDamaged"
)
_decode_types = msgspec.json.Decoder(tuple[str, ...]).decode
_encode_json = msgspec.json.Encoder().encode

# Tasks of one type nearly always share their spec: each is decoded and encoded once. The checksum
# of the input starts with that of the spec, so that a change of either is detected.
_specs: dict[bytes, tuple[Spec, int]] = {}
_spec_bytes: dict[int, tuple[Spec, bytes, int]] = {}


class DamagedError(Exception):
    """A stored part is damaged."""


def spec_from(data: bytes) -> tuple[Spec, int]:
    """Decode a spec, once for all tasks that share it, and return it with its checksum."""
    known = _specs.get(data)
    if known is None:
        if len(_specs) >= SPECS_REMEMBERED_MAX:
            _specs.clear()
        known = _specs[data] = (_decode_spec(data), checksum(data))
    return known


def spec_to(spec: Spec) -> tuple[Spec, bytes, int]:
    """Encode a spec, once for all tasks that share it; the entry keeps its identity unique."""
    known = _spec_bytes.get(id(spec))
    if known is None:
        if spec.idempotency_key:
            # It is the only task with this spec.
            data = _encode(spec)
            return spec, data, checksum(data)
        if len(_spec_bytes) >= SPECS_REMEMBERED_MAX:
            _spec_bytes.clear()
        data = _encode(spec)
        known = _spec_bytes[id(spec)] = (spec, data, checksum(data))
    return known


def progress_from(row: AnyRow) -> AttemptProgress:
    """Decode the progress of a row if it is not damaged."""
    return progress_of(row[19], version=row[10], stored=row[22])


def progress_of(data: bytes | None, *, version: int, stored: int | None) -> AttemptProgress:
    """Decode a progress if it matches its checksum for this version of its row."""
    if not is_version_sound(data, version, stored):
        raise DamagedError
    return NO_PROGRESS if data is None else _decode_progress(data)


def _progress_to(progress: AttemptProgress, version: int) -> tuple[bytes, int]:
    """Encode a progress for a version of its row, and return it with its checksum."""
    data = _encode(progress)
    return data, versioned(data, version)


def labels_from(text: str | None) -> dict[str, str] | None:
    """Read the labels of a task."""
    return None if text is None else _decode_labels(text)


def task_from(row: AnyRow) -> Task:
    """Make a live task from its row."""
    spec, spec_checksum = spec_from(row[18])
    stored = row[21]
    if stored is not None and stored != checksum(row[20] or b"", spec_checksum):
        raise DamagedError
    labels = row[17]
    return Task(
        id=row[0],
        namespace=row[1],
        queue=row[2],
        type=row[3],
        spec=spec,
        state=_STATES[row[4]],
        line=_LINES[row[5]],
        created_at_ms=row[7],
        run_at_ms=row[8],
        progress=NO_PROGRESS if row[19] is row[22] is None else progress_from(row),
        priority=row[6],
        attempt=row[9],
        version=row[10],
        worker_id=row[11],
        handed_at_ms=row[12],
        session_no=row[13],
        last_outcome=_OUTCOMES[row[14]],
        due_at_ms=row[15],
        is_guarded=bool(row[16]),
        labels=None if labels is None else _decode_labels(labels),
        input=row[20],
        link=None if row[23] is row[24] is None else link_from(row, 23),
    )


def link_from(row: AnyRow, at: int) -> RunLink | None:
    """Return how the task of a row belongs to runs, from the columns at a place."""
    journal_id, parent_id, external_id, origin = row[at : at + 4]
    if journal_id is parent_id is None:
        return None
    return RunLink(
        journal_id=journal_id, parent_id=parent_id, external_id=external_id, origin=origin
    )


def claimed_from(row: AnyRow) -> Task:
    """Make a task from a row of the claim, whose input may have been left in the store."""
    task = task_from(row)
    return replace(task, unread_bytes=row[27]) if row[27] else task


def is_input_sound(data: bytes, stored: int | None, spec: bytes) -> bool:
    """Return whether an input that was read separately, and its options, are as stored."""
    return stored is None or stored == checksum(data, checksum(spec))


def finished_from(row: AnyRow) -> Task:
    """Make a finished task from its row in history."""
    spec, spec_checksum = spec_from(row[18])
    stored = row[21]
    if stored is not None and stored != checksum(row[20] or b"", spec_checksum):
        raise DamagedError
    if not is_sound(row[23], row[24]):
        raise DamagedError
    labels = row[17]
    return Task(
        id=row[0],
        namespace=row[1],
        queue=row[2],
        type=row[3],
        spec=spec,
        state=_STATES[row[4]],
        line=Line.NONE,
        created_at_ms=row[7],
        run_at_ms=row[8],
        progress=NO_PROGRESS if row[19] is row[22] is None else progress_from(row),
        priority=row[6],
        attempt=row[9],
        version=row[10],
        worker_id=row[11],
        handed_at_ms=row[12],
        session_no=row[13],
        last_outcome=_OUTCOMES[row[14]],
        labels=None if labels is None else _decode_labels(labels),
        input=row[20],
        output=row[23],
        finished_at_ms=row[25],
        link=None if row[26] is row[27] is None else link_from(row, 26),
    )


def task_inserted(task: Task) -> tuple[object, ...]:
    """Return the parameters of ``insert_tasks``, which are a row as it will be read."""
    _, spec, spec_checksum = spec_to(task.spec)
    progress = progress_checksum = None
    if task.progress is not NO_PROGRESS:
        progress, progress_checksum = _progress_to(task.progress, task.version)
    return (
        task.id,
        task.namespace,
        task.queue,
        task.type,
        task.state,
        task.line,
        task.priority,
        task.created_at_ms,
        task.run_at_ms,
        task.attempt,
        task.version,
        task.worker_id,
        task.handed_at_ms,
        task.session_no,
        task.last_outcome,
        task.due_at_ms,
        task.is_guarded,
        None if task.labels is None else labels_to(task.labels),
        spec,
        progress,
        task.input,
        checksum(task.input or b"", spec_checksum),
        progress_checksum,
    )


def link_inserted(task: Task) -> tuple[object, ...]:
    """Return the last parameters of ``insert_linked_tasks`` and ``insert_history``."""
    link = task.link
    if link is None:
        return (None, None, None, None)
    return link.parent_id, link.journal_id, link.external_id, link.origin


def link_read(task: Task) -> tuple[object, ...]:
    """Return the same as they are read."""
    parent_id, journal_id, external_id, origin = link_inserted(task)
    return journal_id, parent_id, external_id, origin


def task_updated(task: Task) -> tuple[object, ...]:
    """Return the parameters of ``update_tasks``; ``version`` is the one that was read."""
    progress = progress_checksum = None
    if task.progress is not NO_PROGRESS:
        progress, progress_checksum = _progress_to(task.progress, task.version + 1)
    return (
        task.namespace,
        task.id,
        task.version,
        task.state,
        task.line,
        task.run_at_ms,
        task.attempt,
        task.worker_id,
        task.handed_at_ms,
        task.session_no,
        task.last_outcome,
        task.due_at_ms,
        task.is_guarded,
        progress,
        progress_checksum,
    )


def input_replaced(task: Task) -> tuple[object, ...]:
    """Return the parameters of ``replace_inputs``."""
    _, spec, spec_checksum = spec_to(task.spec)
    given = checksum(task.input or b"", spec_checksum)
    return task.namespace, task.id, spec, task.input, given


def task_finished(task: Task) -> tuple[object, ...]:
    """Return the parameters of ``finish_tasks``; ``version`` is the one that was read."""
    progress = progress_checksum = None
    if task.progress is not NO_PROGRESS:
        progress, progress_checksum = _progress_to(task.progress, task.version + 1)
    return (
        task.namespace,
        task.id,
        task.version,
        task.state,
        task.attempt,
        task.worker_id,
        task.last_outcome,
        task.finished_at_ms,
        progress,
        task.output,
        progress_checksum,
        checksum(task.output or b""),
    )


def history_inserted(task: Task) -> tuple[object, ...]:
    """Return the parameters of ``insert_history``: a task that was never live in the store."""
    _, spec, spec_checksum = spec_to(task.spec)
    progress = progress_checksum = None
    if task.progress is not NO_PROGRESS:
        progress, progress_checksum = _progress_to(task.progress, task.version)
    return (
        task.id,
        task.namespace,
        task.queue,
        task.type,
        task.state,
        task.priority,
        task.created_at_ms,
        task.run_at_ms,
        task.attempt,
        task.version,
        task.worker_id,
        task.handed_at_ms,
        task.session_no,
        task.last_outcome,
        None if task.labels is None else labels_to(task.labels),
        spec,
        progress,
        task.input,
        task.output,
        task.finished_at_ms,
        checksum(task.input or b"", spec_checksum),
        progress_checksum,
        checksum(task.output or b""),
        *link_inserted(task),
    )


def labels_to(labels: dict[str, str] | None) -> str | None:
    """Return labels as JSON text."""
    return None if labels is None else _encode_json(labels).decode()


def types_from(text: str) -> tuple[str, ...]:
    """Read the types of a worker."""
    return _decode_types(text)


def names_from(text: str) -> tuple[str, ...]:
    """Read the namespaces of a key or of a record."""
    return _decode_types(text)


def names_to(names: Sequence[str]) -> str:
    """Return namespaces as JSON text."""
    return _encode_json(names).decode()


def attempt_from(row: AnyRow) -> Attempt:
    """Make an ended attempt from its row; a damaged error is not shown."""
    return Attempt(
        namespace=row[0],
        task_id=row[1],
        number=row[2],
        outcome=Outcome(row[3]),
        worker_id=row[4],
        handed_at_ms=row[5],
        ended_at_ms=row[6],
        state_after=row[7],
        error=error_from(row),
        callback=callback_from(row),
    )


def error_from(row: AnyRow) -> ErrorInfo | None:
    """Decode the error of an ended attempt; a damaged one is ``DAMAGED_ERROR``."""
    data = row[8]
    if data is None:
        return None
    if not is_sound(data, row[9]):
        return DAMAGED_ERROR
    try:
        return _decode_error(data)
    except ValueError:
        return DAMAGED_ERROR


def callback_from(row: AnyRow) -> CallbackAttempt | None:
    """Decode what a process said about an ended attempt; what is damaged is not shown."""
    data = row[10]
    if data is None or not is_sound(data, row[11]):
        return None
    try:
        return _decode_callback(data)
    except ValueError:
        return None


def attempt_inserted(attempt: Attempt) -> tuple[object, ...]:
    """Return the parameters of ``insert_attempts``."""
    error = None if attempt.error is None else _encode(attempt.error)
    callback = None if attempt.callback is None else _encode(attempt.callback)
    return (
        attempt.namespace,
        attempt.task_id,
        attempt.number,
        attempt.outcome,
        attempt.worker_id,
        attempt.handed_at_ms,
        attempt.ended_at_ms,
        attempt.state_after,
        error,
        None if error is None else checksum(error),
        callback,
        None if callback is None else checksum(callback),
    )


def worker_from(row: AnyRow) -> Worker:
    """Make a worker from its row."""
    return Worker(
        id=row[0],
        namespace=row[1],
        queue=row[2],
        types=types_from(row[3]),
        instance_key=row[4],
        registered_at_ms=row[5],
        status=WorkerStatus(row[6]),
        mode=WorkerMode(row[7]),
        slots=row[8],
        name=row[9],
        hostname=row[10],
        pid=row[11],
        software_version=row[12],
        labels=_decode_labels(row[13]),
        session_no=row[14],
        end_reason=None if row[15] is None else EndReason(row[15]),
        drain_at_ms=row[16],
        ended_at_ms=row[17],
        release_pending=bool(row[18]),
        version=row[19],
        key_id=row[20],
    )


def worker_inserted(worker: Worker) -> tuple[object, ...]:
    """Return the parameters of ``insert_workers``."""
    return (
        worker.id,
        worker.namespace,
        worker.queue,
        _encode_json(worker.types).decode(),
        worker.instance_key,
        worker.registered_at_ms,
        worker.status,
        worker.mode,
        worker.slots,
        worker.name,
        worker.hostname,
        worker.pid,
        worker.software_version,
        labels_to(worker.labels),
        worker.session_no,
        worker.end_reason,
        worker.drain_at_ms,
        worker.ended_at_ms,
        worker.release_pending,
        worker.version,
        worker.key_id,
    )


def worker_updated(worker: Worker) -> tuple[object, ...]:
    """Return the parameters of ``update_workers``; ``version`` is the one that was read."""
    return (
        worker.id,
        worker.version,
        worker.status,
        worker.session_no,
        worker.end_reason,
        worker.drain_at_ms,
        worker.ended_at_ms,
        worker.release_pending,
        worker.key_id,
    )


def lease_from(row: AnyRow) -> Lease:
    """Make a lease from its row, whose columns come in the order of the fields."""
    return Lease(*row[:15])


def lease_inserted(lease: Lease) -> tuple[object, ...]:
    """Return the parameters of ``insert_leases``."""
    return (
        lease.worker_id,
        lease.namespace,
        lease.server_id,
        lease.lease_until_ms,
        lease.lease_ms,
        lease.token,
        lease.beat_at_ms,
        lease.previous_beat_at_ms,
    )


def queue_from(row: AnyRow) -> Queue:
    """Make a queue from its row."""
    return Queue(row[0], row[1], bool(row[2]), row[3], row[4])


def namespace_from(row: AnyRow) -> Namespace:
    """Make a namespace from its row."""
    return Namespace(row[0], row[1], bool(row[2]))
