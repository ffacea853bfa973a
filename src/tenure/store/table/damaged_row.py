"""Rows of tasks as records, one by one if a row is damaged: it must not hide other rows.

A damaged part is left out of the record, which says so. A state that cannot be right is replaced by
a guess: the core ends such a task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from tenure.core.checksum import checksum
from tenure.core.task.attempt import Outcome
from tenure.core.task.damage import DamagedPart
from tenure.core.task.record import NO_PROGRESS, AttemptProgress, Line, Spec, Task, TaskState
from tenure.store.table import codec
from tenure.store.table.codec import AnyRow, DamagedError

log = structlog.get_logger("tenure.store")
T = TypeVar("T")
# What the decoders raise for invalid bytes: msgspec's errors are ValueErrors.
_WRONG = (DamagedError, ValueError, TypeError, LookupError, AssertionError)
_FINISHED_COLUMNS = 30
# id, namespace, queue, type, state, worker_id, last_outcome, labels
_TEXT_COLUMNS = (0, 1, 2, 3, 4, 11, 14, 17)


class DamagedRows(list[Any]):
    """Rows in which a damaged text may be bytes."""


def _log_unreadable(row: AnyRow) -> None:
    log.error("store.row_unreadable", task_id=_shown(row[0]), namespace=_shown(row[1]))


def _shown(value: object) -> str:
    return ascii(value)[:80]


def tasks_from(
    rows: Sequence[AnyRow],
    make: Callable[[AnyRow], Task],
    tell: Callable[[AnyRow], None] = _log_unreadable,
) -> list[Task]:
    """Make tasks from their rows by ``make``, and partial records from damaged rows.

    ``tell`` is called for rows whose key cannot be read: nothing can be done with them.
    """
    try:
        if type(rows) is not DamagedRows:
            return [make(row) for row in rows]
    except _WRONG:
        pass
    found = []
    for row in rows:
        task = _task_or_rest(row, make)
        if task is None:
            tell(row)
        else:
            found.append(task)
    return found


def suspect_from(row: AnyRow) -> tuple[str, AttemptProgress]:
    """Return the worker and the progress of a suspect; a damaged one shares with no other."""
    worker_id, data, version, stored = row
    try:
        return worker_id, codec.progress_of(data, version=version, stored=stored)
    except _WRONG:
        return worker_id, NO_PROGRESS


def _task_or_rest(row: AnyRow, make: Callable[[AnyRow], Task]) -> Task | None:
    try:
        if not any(isinstance(row[number], bytes) for number in _TEXT_COLUMNS):
            return make(row)
    except _WRONG:
        pass
    try:
        return _rest(row)
    except _WRONG:
        return None


def _rest(row: AnyRow) -> Task:
    """Make a record from the readable parts of a damaged row."""
    parts: list[str] = []
    spec, start = _part(parts, DamagedPart.OPTIONS, lambda: codec.spec_from(row[18]), (Spec(), 0))
    progress = _part(parts, DamagedPart.PROGRESS, lambda: codec.progress_from(row), NO_PROGRESS)
    labels = _part(parts, DamagedPart.LABELS, lambda: codec.labels_from(row[17]), None)
    is_finished = len(row) == _FINISHED_COLUMNS and row[25] is not None
    input_ = _payload(parts, DamagedPart.INPUT, row[20], row[21], start)
    output = _payload(parts, DamagedPart.OUTPUT, row[23], row[24]) if is_finished else None
    id_, namespace, queue, type_ = map(_text, row[:4])
    task = Task(
        id=id_,
        namespace=namespace,
        queue=queue,
        type=type_,
        spec=spec,
        state=TaskState.PENDING,
        line=Line.NONE,
        created_at_ms=_number(row[7]),
        run_at_ms=_number(row[8]),
        progress=progress,
        attempt=_number(row[9]),
        version=_number(row[10]),
        handed_at_ms=_number(row[12]),
        session_no=_number(row[13]),
        labels=labels,
        input=input_,
        link=codec.link_from(row, 26 if is_finished else 23),
    )
    task = _finished(row, task, parts) if is_finished else _live(row, task, parts)
    return replace(task, output=output, damaged=tuple(sorted(parts)))


def _finished(row: AnyRow, task: Task, parts: list[str]) -> Task:
    """Return how a task has ended; if that cannot be read, it counts as failed."""
    at_ms = _number(row[25])
    try:
        return replace(
            task,
            state=TaskState(row[4]),
            priority=_number(row[6]),
            worker_id=None if row[11] is None else _text(row[11]),
            last_outcome=None if row[14] is None else Outcome(row[14]),
            finished_at_ms=at_ms,
        )
    except _WRONG:
        parts.append(DamagedPart.STATE)
        return replace(task, state=TaskState.FAILED, finished_at_ms=at_ms)


def _live(row: AnyRow, task: Task, parts: list[str]) -> Task:
    """Return the state of a live task; if it cannot be read, what its worker suggests."""
    try:
        return replace(
            task,
            state=TaskState(row[4]),
            line=Line(row[5]),
            priority=_number(row[6]),
            worker_id=None if row[11] is None else _text(row[11]),
            last_outcome=None if row[14] is None else Outcome(row[14]),
            due_at_ms=row[15],
            is_guarded=bool(row[16]),
        )
    except _WRONG:
        parts.append(DamagedPart.STATE)
    if isinstance(row[11], str) and task.attempt > 0:
        return replace(task, state=TaskState.RUNNING, worker_id=row[11])
    return task


def _payload(
    parts: list[str], part: DamagedPart, data: object, stored: int | None, start: int = 0
) -> bytes | None:
    """Return a payload if it is not damaged."""
    payload = data if isinstance(data, bytes) else None
    if payload is data and (stored is None or stored == checksum(payload or b"", start)):
        return payload
    parts.append(part)
    return None


def _part(parts: list[str], part: DamagedPart, read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except _WRONG:
        parts.append(part)
        return otherwise


def _text(value: object) -> str:
    return msgspec.convert(value, str)


def _number(value: object) -> int:
    return msgspec.convert(value, int)
