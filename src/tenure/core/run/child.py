"""Children of a run: how they are made, what their ends say, and how they are closed."""

from __future__ import annotations

from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from tenure.core.journal.entry import JSON, EntryBody, EntryKind, NewEntry
from tenure.core.limits import RUN_DEPTH_MAX
from tenure.core.run import start as run_start
from tenure.core.run.record import NO_ORIGIN, NOT_BEGUN, ClosePolicy, Origin, RunLink, encode_origin
from tenure.core.task import attempt_end, enqueue
from tenure.core.task.attempt import Outcome
from tenure.core.task.event import CancelRequested, Terminated
from tenure.core.task.record import NewTask, Reason, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.errors import Rejection

CLOSE_REASON: Final = "The run that started it has ended."
_ALREADY_EXISTS: Final = "already_exists"
_UNKNOWN: Final = ErrorInfo(ErrorCategory.USER_CODE, "")


class Call(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The call of a run that makes a child: its place in the run, or in a group of it."""

    key: str
    index: int
    group_id: str = ""
    item: int = 0
    close_policy: ClosePolicy = ClosePolicy.CANCEL


def place_of(task: Task) -> Origin:
    """Return what a task knows of its place in runs."""
    return NO_ORIGIN if task.link is None else task.link.place


def too_deep(parent: Task) -> Rejection | None:
    """Refuse a run below a run that has too many above it."""
    depth = place_of(parent).depth + 1
    if depth <= RUN_DEPTH_MAX:
        return None
    message = (
        f"Run {parent.id} has {depth - 1} runs above it; at most {RUN_DEPTH_MAX} are allowed. "
        "Begin anew with ctx.continue_as_new, or start the next run with client.start in a step."
    )
    return Rejection("invalid_argument", message, {"field": "children"})


def create(
    new: NewTask, parent: Task, call: Call, *, now_ms: int, journal_id: str, external_id: str
) -> Task:
    """Return the task or, with a journal, the run that a run makes by a call."""
    is_run = new.spec.kind is TaskKind.WORKFLOW
    link = RunLink(
        journal_id=journal_id if is_run else None,
        parent_id=call.group_id or parent.id,
        external_id=external_id or None,
        origin=encode_origin(_origin(parent, call, is_run=is_run)),
    )
    if is_run:
        run = run_start.create(
            new, namespace=parent.namespace, now_ms=now_ms, journal_id=journal_id
        )
        return replace(run, link=link)
    return replace(enqueue.create(new, namespace=parent.namespace, now_ms=now_ms), link=link)


def _origin(parent: Task, call: Call, *, is_run: bool) -> Origin:
    place = place_of(parent)
    assert parent.link is not None
    assert parent.link.journal_id is not None
    return Origin(
        run_id=parent.id,
        journal_id=parent.link.journal_id,
        key=call.key,
        index=call.index,
        group_id=call.group_id,
        item=call.item,
        close_policy=call.close_policy,
        root_run_id=place.root_run_id or parent.id,
        depth=place.depth + 1,
        step_key="" if is_run else _step_key(parent, call),
    )


def _step_key(parent: Task, call: Call) -> str:
    """Return the idempotency key of a queued step: a retry of its run has the same."""
    first_run_id = place_of(parent).first_run_id or parent.id
    generation = (parent.progress.run or NOT_BEGUN).generation
    item = f":{call.item}" if call.group_id else ""
    return f"{first_run_id}:{generation}:{call.key}{item}"


def refused(task: Task, external_id: str, owner_id: str, now_ms: int) -> Task:
    """Return a child run that has failed at once: its external id is that of another live run."""
    message = f"The external id {external_id!r} belongs to run {owner_id}, which is live."
    error = ErrorInfo(ErrorCategory.CONFIGURATION, message, type=_ALREADY_EXISTS)
    return attempt_end.fail(task, Reason.NON_RETRYABLE, Outcome.FAILED, error, now_ms).task


def is_of(parent: Task | None, place: Origin) -> bool:
    """Tell whether a run still waits for a child: it is live, with the journal of the call."""
    if parent is None or parent.finished_at_ms is not None or parent.link is None:
        return False
    return parent.link.journal_id == place.journal_id


def ended(task: Task, *, key: str, index: int) -> NewEntry:
    """Return what the journal of its parent says of a child that has ended."""
    error = error_of(task)
    started_at_ms = _started_at_ms(task)
    assert task.finished_at_ms is not None
    body = EntryBody(
        index=index,
        output=task.output,
        encoding=task.output_encoding or JSON,
        error=error,
        attempts=task.attempt,
        started_at_ms=started_at_ms,
        took_ms=task.finished_at_ms - started_at_ms if started_at_ms else 0,
        task_id=task.id,
        type=task.type,
        state=task.state.value,
        reason=_reason_of(task),
    )
    return NewEntry(EntryKind.CHILD, key, body)


def _started_at_ms(task: Task) -> int:
    run = task.progress.run
    return task.handed_at_ms if run is None else run.begun_at_ms


def _reason_of(task: Task) -> str:
    error, reason = task.progress.error, task.progress.reason
    if not task.attempt and error is not None and error.type == _ALREADY_EXISTS:
        return _ALREADY_EXISTS
    return "" if reason is None else reason.value


def error_of(task: Task) -> ErrorInfo | None:
    """Return why a finished child has no output."""
    if task.state is TaskState.SUCCEEDED:
        return None
    error = task.progress.error or _UNKNOWN
    if task.state is TaskState.FAILED:
        return error
    message = error.message or task.progress.cancel_reason or "The task was cancelled."
    return replace(error, category=ErrorCategory.CANCELLED, message=message)


def closing(policy: ClosePolicy) -> CancelRequested | Terminated | None:
    """Return what happens to a live child whose run has ended; nothing to one that is abandoned."""
    match policy:
        case ClosePolicy.CANCEL:
            return CancelRequested(reason=CLOSE_REASON)
        case ClosePolicy.TERMINATE:
            return Terminated(message=CLOSE_REASON)
        case ClosePolicy.ABANDON:
            return None
        case _:
            assert_never(policy)
