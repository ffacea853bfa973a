"""Runs in messages of the protocol: entries of a journal, and how an attempt ends."""

from __future__ import annotations

import asyncio
from typing import Final

from tenure.core.limits import STEP_SITE_BYTES_MAX, WAIT_TEXT_BYTES_MAX
from tenure.core.task.retry import ErrorCategory
from tenure.sdk import failure
from tenure.sdk.payload import Converter
from tenure.sdk.worker.execution import attempt
from tenure.sdk.workflow.ending import (
    Continued,
    Ending,
    Parked,
    Raised,
    Refused,
    Released,
    Returned,
    Yielded,
)
from tenure.sdk.workflow.journal import Entry, Kind, OpenCall
from tenure.v1 import task_pb2

YIELDED: Final = task_pb2.FINISH_KIND_YIELDED
CONTINUED: Final = task_pb2.FINISH_KIND_CONTINUED
PARKED: Final = task_pb2.FINISH_KIND_PARKED
_KINDS: Final = {each.value: each for each in Kind}


def to_wire(entry: Entry) -> task_pb2.NewEntry:
    """Return an entry as it is reported."""
    made = task_pb2.NewEntry(
        kind=entry.kind,  # type: ignore[arg-type]  # (the same numbers)
        key=entry.key,
        index=entry.index,
        output=entry.output,
        encoding=entry.encoding,
        attempts=entry.attempts,
        started_at_ms=entry.started_at_ms,
        took_ms=entry.took_ms,
        fire_at_ms=entry.fire_at_ms,
        site=_cut(_place(entry.line), STEP_SITE_BYTES_MAX),
        next_at_ms=entry.next_at_ms,
    )
    if entry.error is not None:
        made.error.CopyFrom(entry.error)
    return made


def from_wire(found: task_pb2.Entry) -> Entry:
    """Return an entry as it stands in the journal."""
    content = found.content
    return Entry(
        kind=_KINDS[content.kind],
        key=content.key,
        index=content.index,
        output=content.output if content.HasField("output") else None,
        encoding=content.encoding,
        error=content.error if content.HasField("error") else None,
        attempts=content.attempts,
        fire_at_ms=content.fire_at_ms,
        next_at_ms=content.next_at_ms,
        line=content.site,
        child=found.child if found.HasField("child") else None,
        group=found.group if found.HasField("group") else None,
        pos=found.pos,
        at_ms=found.at_ms,
        attempt=found.attempt,
        no=found.no,
    )


def open_calls(page: task_pb2.JournalPage) -> list[OpenCall]:
    """Return the children and groups of a page that have not ended."""
    children = [
        OpenCall(Kind.CHILD, each.key, each.index, each.type, each.task_id) for each in page.open
    ]
    groups = [
        OpenCall(
            Kind.GROUP,
            each.key,
            each.index,
            each.type,
            each.group_id,
            total=each.total,
            spawned=each.spawned,
        )
        for each in page.groups
    ]
    return children + groups


def finish_of(
    task: task_pb2.AssignedTask, ending: Ending, converter: Converter, now_ms: int
) -> task_pb2.TaskFinish:
    """Return how an attempt of a run ended, as it is reported."""
    match ending:
        case Returned(value):
            return attempt.returned(
                task, lambda: converter.encode(value), converter, what="workflow"
            )
        case Raised(error, is_cancel):
            if is_cancel and isinstance(error, asyncio.CancelledError):
                return attempt.ended_as(task, attempt.CANCELLED)
            return attempt.failed(task, attempt.error_of(error, converter))
        case Yielded():
            return _yielded(task, ending, now_ms)
        case Parked(mismatch):
            return parked(task, "journal_mismatch", mismatch.text)
        case Refused(code, message):
            return parked(task, code, message)
        case Continued(arguments, keep, seen):
            finish = attempt.ended_as(task, CONTINUED)
            finish.next_input, finish.next_encoding = arguments.data, arguments.encoding
            finish.keep.extend(keep)
            finish.seen = seen
            return finish
        case Released():
            return attempt.ended_as(task, attempt.RELEASED)


def parked(task: task_pb2.AssignedTask, code: str, message: str) -> task_pb2.TaskFinish:
    """Return that a run cannot go on as its code and its journal are now."""
    finish = attempt.ended_as(task, PARKED)
    finish.error.CopyFrom(failure.make_error(message, code, ErrorCategory.CONFIGURATION))
    return finish


def _yielded(task: task_pb2.AssignedTask, ending: Yielded, now_ms: int) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=YIELDED,
        seen=ending.seen,
        wake_at_ms=ending.wake_at_ms,
        wake_key=ending.wake_key,
        wake_index=ending.wake_index,
        patience_n=ending.patience_n,
        patience_ms=ending.patience_ms,
        waits=[
            task_pb2.Wait(
                kind=each.kind,
                key=each.key,
                since_ms=each.since_ms or now_ms,
                detail=_cut(each.detail, WAIT_TEXT_BYTES_MAX),
                site=_cut(_place(each.line), STEP_SITE_BYTES_MAX),
            )
            for each in ending.waits
        ],
        wait_count=ending.wait_count,
    )


def _place(line: str) -> str:
    """Return file and line alone: each entry keeps them."""
    return line.rpartition(" in ")[0] or line


def _cut(text: str, bytes_max: int) -> str:
    """Cut the end off a text that is too long, such as the name of a file."""
    if len(text) * 4 <= bytes_max:
        return text
    return text.encode()[:bytes_max].decode(errors="ignore")
