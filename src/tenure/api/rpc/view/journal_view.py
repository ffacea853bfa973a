"""Converts journals between records of the core and messages of the wire."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import structs
from msgspec.structs import replace

from tenure.api.rpc import error
from tenure.api.rpc.view import task_view
from tenure.core.assignment import counted_bytes
from tenure.core.journal import numbering
from tenure.core.journal.entry import (
    JSON,
    Entry,
    EntryBody,
    EntryKind,
    JournalPage,
    NewEntry,
    OpenChild,
    OpenGroup,
)
from tenure.core.limits import FRAME_BYTES, JOURNAL_PAGE_BYTES_MAX
from tenure.core.task.record import Task, TaskState
from tenure.engine.read.held_journal import PageAnswer, PageRef
from tenure.engine.run import command as c
from tenure.errors import DataDamaged, InvalidArgument, Rejection, TenureError
from tenure.v1 import journal_pb2, task_pb2
from tenure.v1.task_pb2 import AssignedTask

_KINDS: Final = {kind: task_pb2.EntryKind.Value(f"ENTRY_KIND_{kind.name}") for kind in EntryKind}
# The very default is not stored; another text like it is.
_USUAL: Final = {"": JSON, JSON: JSON}
_KIND_OF: Final[dict[int, EntryKind]] = {number: kind for kind, number in _KINDS.items()}


def step_report(message: journal_pb2.StepReport) -> c.StepReport:
    """Return what the holder of a run appends to its journal."""
    return c.StepReport(
        task_id=message.task_id,
        attempt=message.attempt,
        first_no=message.first_no,
        entries=tuple([_new_entry(each) for each in message.entries]),
    )


def _new_entry(message: task_pb2.NewEntry) -> NewEntry:
    kind = _KIND_OF.get(message.kind)
    if kind is None:
        raise InvalidArgument("kind must be one of the kinds of entries", field="kind")
    body = EntryBody(
        index=message.index,
        output=message.output if message.HasField("output") else None,
        encoding=_USUAL.get(message.encoding, message.encoding),
        error=task_view.error_info(message.error) if message.HasField("error") else None,
        attempts=message.attempts,
        started_at_ms=message.started_at_ms,
        took_ms=message.took_ms,
        site=message.site,
        fire_at_ms=message.fire_at_ms,
        next_at_ms=message.next_at_ms,
    )
    return NewEntry(kind, message.key, body)


def step_acks(item: c.StepReport, answer: c.StepAnswer) -> Iterable[journal_pb2.StepAck]:
    """Say where the entries of a report stand: the last of each consecutive ones."""
    if isinstance(answer, Rejection):
        yield refused_report(item, answer)
        return
    places = answer.places
    # Between what was recorded before and what is new others may stand.
    lasts = [place for place, next_one in pairwise(places) if next_one.pos != place.pos + 1]
    for last in (*lasts, places[-1]):
        yield journal_pb2.StepAck(
            task_id=item.task_id, attempt=item.attempt, no=last.no, pos=last.pos, at_ms=last.at_ms
        )


def refused_report(
    item: c.StepReport | journal_pb2.StepReport, refusal: TenureError | Rejection
) -> journal_pb2.StepAck:
    """Say why nothing of a report was recorded."""
    return journal_pb2.StepAck(
        task_id=item.task_id,
        attempt=item.attempt,
        no=item.first_no,
        error=error.detail(refusal, journal_pb2.StepReport.DESCRIPTOR),
    )


def page_ref(message: journal_pb2.JournalRequest) -> PageRef:
    """Return which page a worker wants."""
    return PageRef(
        task_id=message.task_id,
        attempt=message.attempt,
        after=message.after,
        group_key=message.group_key,
        open_after=message.open_after,
    )


def answered_page(wanted: PageRef, answer: PageAnswer) -> task_pb2.JournalPage:
    """Show the page that was wanted, or why there is none."""
    if isinstance(answer, JournalPage):
        return page(wanted.task_id, wanted.attempt, answer)
    told = error.detail(answer, journal_pb2.JournalRequest.DESCRIPTOR)
    return task_pb2.JournalPage(
        task_id=wanted.task_id,
        attempt=wanted.attempt,
        after=wanted.after,
        group_key=wanted.group_key,
        error=told,
    )


def page(task_id: str, attempt: int, shown: JournalPage) -> task_pb2.JournalPage:
    """Show entries of a journal to whoever holds its run; a damaged one spoils its page."""
    made = task_pb2.JournalPage(
        task_id=task_id,
        attempt=attempt,
        after=shown.after,
        end=shown.end,
        open=[_open_child(each) for each in shown.open],
        open_next=shown.open_next,
        groups=[open_group(each) for each in shown.groups],
        group_key=shown.group_key,
    )
    try:
        made.entries.extend([entry(each) for each in shown.entries])
    except msgspec.DecodeError:
        message = f"An entry of the journal of run {task_id} behind {shown.after} is damaged."
        made.error.CopyFrom(error.detail(DataDamaged(message, reason="journal")))
    return made


def _open_child(child: OpenChild) -> task_pb2.OpenChild:
    return task_pb2.OpenChild(
        task_id=child.task_id,
        key=child.key,
        index=child.index,
        type=child.type,
        kind=task_pb2.TASK_KIND_WORKFLOW if child.is_run else task_pb2.TASK_KIND_ACTIVITY,
    )


def open_group(group: OpenGroup) -> task_pb2.OpenGroup:
    """Show a group that has not ended: how many items are stored, open and failed."""
    return task_pb2.OpenGroup(**structs.asdict(group))


def entry(stored: Entry) -> task_pb2.Entry:
    """Show an entry as it stands in its journal."""
    body = stored.content
    made = task_pb2.Entry(
        pos=stored.pos,
        at_ms=stored.at_ms,
        attempt=stored.attempt,
        no=stored.no,
        content=task_pb2.NewEntry(
            kind=_KINDS[stored.kind],
            key=stored.key,
            index=body.index,
            output=body.output,
            encoding="" if body.output is None else body.encoding,
            error=task_view.task_error(body.error),
            attempts=body.attempts,
            started_at_ms=body.started_at_ms,
            took_ms=body.took_ms,
            fire_at_ms=body.fire_at_ms,
            site=body.site,
            next_at_ms=body.next_at_ms,
        ),
        signal_id=body.signal_id,
        sender=body.sender,
    )
    # Set only of those that have them: most entries are steps.
    if stored.kind is EntryKind.CHILD:
        made.child.CopyFrom(_child_end(body))
    elif stored.kind is EntryKind.GROUP:
        made.group.CopyFrom(_group_end(body))
    return made


def _child_end(body: EntryBody) -> task_pb2.ChildEnd:
    return task_pb2.ChildEnd(
        task_id=body.task_id,
        type=body.type,
        state=task_view.STATES[TaskState(body.state)],
        failure_reason=body.reason,
    )


def _group_end(body: EntryBody) -> task_pb2.GroupEnd:
    return task_pb2.GroupEnd(
        group_id=body.group_id,
        total=body.total,
        succeeded=body.succeeded,
        failed=body.failed,
        cancelled=body.cancelled,
    )


def assigned(task: Task, task_token: str = "", *, room_bytes: int = FRAME_BYTES) -> AssignedTask:
    """Return a task as its worker gets it; a run comes with a page of its journal.

    The worker asks for what has no room beside the rest of the frame, and for an entry that is
    larger than a page.
    """
    made = task_view.assigned(task, task_token)
    run = task.progress.run
    if run is None or task.link is None or task.link.page is None:
        return made
    given, bytes_max = task.link.page, min(room_bytes, JOURNAL_PAGE_BYTES_MAX)
    if numbering.page_bytes(given) > bytes_max:
        given = replace(given, entries=())
    given = numbering.cut_open(given, bytes_max=bytes_max)
    made.journal.CopyFrom(page(task.id, task.attempt, given))
    made.generation = run.generation
    made.begun_at_ms = run.begun_at_ms
    return made


def assigned_bytes(task: Task) -> int:
    """Return what the payloads of an assigned task take, with the page of its journal."""
    size = counted_bytes(task)
    if task.link is not None and task.link.page is not None:
        size += min(numbering.page_bytes(task.link.page), JOURNAL_PAGE_BYTES_MAX)
    return size
