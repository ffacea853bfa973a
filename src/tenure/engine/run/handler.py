"""Commands about runs: each becomes events and entries, and its answer is what was decided."""

from __future__ import annotations

import functools
import hashlib
from typing import Final, Protocol

from tenure.core.journal import numbering, room
from tenure.core.journal.entry import JSON, EntryBody, EntryKind, NewEntry
from tenure.core.journal.numbering import JournalEnd
from tenure.core.run import start as run_start
from tenure.core.task import decide as task_rules
from tenure.core.task import event as task_event
from tenure.core.task.event import TaskEvent
from tenure.core.task.record import TERMINAL, Task, TaskKind
from tenure.core.task.refusal import already_terminal
from tenure.core.worker import decide as worker_rules
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.run import audit, external_id
from tenure.engine.run import command as c
from tenure.engine.run.needs import signal_key
from tenure.engine.task import handler as task_handler
from tenure.engine.task.command import Reported
from tenure.engine.task.handler import not_found, reported
from tenure.errors import IdempotencyConflict, Rejection
from tenure.store.table.journal import Holder
from tenure.store.table.task import TaskKey

_NOT_HERE: Final = "not_found"


def start_run(ws: WorkingSet, command: c.StartRun) -> c.Started:
    """Store a run with an empty journal, or with the signals that it is started with.

    What repeats a request is found by its id or key first, then by the external id.
    """
    namespace, journal_id = command.namespace, ws.clock.new_id()
    if not task_handler.is_known(ws, command.request):
        found = external_id.found_instead(ws, command)
        if found is not None:
            return found
    create = functools.partial(
        run_start.create, journal_id=journal_id, external_id=command.external_id
    )
    (answer,) = task_handler.take_new(ws, command.request, create)
    if answer.is_new:
        key = (namespace, answer.task_id)
        ws.journals.ends[key] = JournalEnd(journal_id)
        ws.append_entries(key, [_signal_entry(each) for each in command.signals])
        if command.external_id:
            external_id.give(ws, namespace, command.external_id, ws.tasks[key])
    return c.Started(answer.task_id, answer.state, is_new=answer.is_new, outcome=answer.outcome)


def _signal_entry(signal: c.NewSignal) -> NewEntry:
    body = EntryBody(
        output=signal.payload,
        encoding=signal.encoding or JSON,
        signal_id=signal.signal_id,
        sender=signal.sender,
    )
    return NewEntry(EntryKind.SIGNAL, signal.name, body)


def record_steps(ws: WorkingSet, command: c.RecordSteps) -> tuple[c.StepAnswer, ...]:
    """Append what holders report; a report that comes again gets its first answer."""
    check_speaker(ws, command)
    namespace, worker_id = command.namespace, command.worker_id
    return tuple(
        [_record(ws, (namespace, item.task_id), item, worker_id) for item in command.items]
    )


class _Spoken(Protocol):
    """What a worker says, and the key that it comes with."""

    @property
    def namespace(self) -> str: ...
    @property
    def worker_id(self) -> str: ...
    @property
    def speaker(self) -> str | None: ...


def check_speaker(ws: WorkingSet, command: _Spoken) -> None:
    """Refuse a key that reports for a worker of another one; one that is gone holds nothing."""
    worker = ws.workers.get(command.worker_id) if command.speaker is not None else None
    if worker is not None and worker.namespace == command.namespace:
        refusal = worker_rules.speaker_refusal(worker, command.speaker)
        if refusal is not None:
            raise refusal.to_error()


def _record(ws: WorkingSet, key: TaskKey, item: c.StepReport, worker_id: str) -> c.StepAnswer:
    task = ws.tasks.get(key)
    if task is None or is_without_journal(task):
        return Rejection(_NOT_HERE, f"Task {key[1]} was not found.")
    event = task_event.StepsRecorded(attempt=item.attempt, worker_id=worker_id)
    last_no = ws.journals.ends[key].last_no_of(item.attempt) if key in ws.journals.ends else 0
    # Not by ``ws.apply``: the row stays as it is, and the insert tells whether a copy was stale.
    decision = task_rules.decide(task, event, ws.now_ms)
    rejection = decision if isinstance(decision, Rejection) else _append(ws, key, item, worker_id)
    if rejection is not None:
        if key in ws.tasks.cached and key not in ws.tasks.changed:
            ws.doubtful.add(key)
        return rejection
    places = ws.journals.places.get((ws.journals.ends[key].journal_id, item.attempt), {})
    numbers = range(item.first_no, item.first_no + len(item.entries))
    if item.first_no not in places:
        # The run began anew at another server: the copy is of a journal that is gone.
        ws.doubtful.add(key)
        return Rejection(_NOT_HERE, f"Task {key[1]} was not found.")
    return c.StepsPlaced(tuple([places[no] for no in numbers]), is_new=item.first_no > last_no)


def _append(ws: WorkingSet, key: TaskKey, item: c.StepReport, worker_id: str) -> Rejection | None:
    """Append what is new of a report; return why that is not possible."""
    end, attempt = ws.journals.ends[key], item.attempt
    refusal = numbering.out_of_order(end, attempt=attempt, first_no=item.first_no)
    if refusal is not None:
        return refusal
    fresh = item.entries[end.last_no_of(attempt) + 1 - item.first_no :]
    if not fresh:
        return None
    entries, after = numbering.append(end, fresh, at_ms=ws.now_ms, attempt=attempt)
    refusal = numbering.too_early(fresh, ws.now_ms) or room.full(after)
    if refusal is None:
        ws.journals.append(key, entries, after, Holder(*key, worker_id))
    return refusal


def signal_run(ws: WorkingSet, command: c.SignalRun) -> c.Signalled:
    """Append a signal to a live run, and wake the run if it waits."""
    task = _run(ws, command.namespace, command.run_id)
    key = (task.namespace, task.id)
    is_known = _is_known(ws, command)
    if is_known:
        return c.Signalled(is_new=False)
    if task.state in TERMINAL:
        raise already_terminal(task).to_error()
    entry = _signal_entry(command.signal)
    _, after = numbering.append(ws.journals.ends[key], [entry], at_ms=ws.now_ms)
    refusal = room.flooded(after)
    if refusal is not None:
        raise refusal.to_error()
    ws.append_entries(key, [entry])
    ws.apply(key, task_event.EntryAppended(pos=after.pos, is_urgent=True))
    if command.signal.signal_id:
        name = signal_key(command)
        task_handler.keep_key(ws, command.namespace, name, task.id, _digest(command.signal))
    return c.Signalled(is_new=True)


def _is_known(ws: WorkingSet, command: c.SignalRun) -> bool:
    """Tell whether a signal with this id was recorded; with other content it is refused."""
    if not command.signal.signal_id:
        return False
    row = ws.keys.get((command.namespace, signal_key(command)))
    if row is None:
        return False
    if row.digest != _digest(command.signal):
        message = (
            f"The signal id {command.signal.signal_id!r} was used for run {row.task_id} with other "
            "content. Use another id, or send the first content."
        )
        raise IdempotencyConflict(message, task_id=row.task_id)
    return True


def _digest(signal: c.NewSignal) -> bytes:
    text = f"{signal.name}\0{signal.encoding}\0{signal.payload is None}\0"
    return hashlib.blake2b(text.encode() + (signal.payload or b""), digest_size=16).digest()


def change_run(ws: WorkingSet, command: c.CancelRun | c.ResumeRun | c.TerminateRun) -> Reported:
    """Do what an operator or a client asks of one run."""
    task = _run(ws, command.namespace, command.run_id)
    wish = _wish(command)
    decision = ws.apply((task.namespace, task.id), wish)
    if isinstance(decision, Rejection):
        raise decision.to_error()
    audit.note_change(ws, wish, command.actor, before=task, after=decision.task)
    return reported(decision.task)


def _wish(command: c.CancelRun | c.ResumeRun | c.TerminateRun) -> TaskEvent:
    match command:
        case c.CancelRun():
            return task_event.CancelRequested(reason=command.reason)
        case c.ResumeRun():
            return task_event.ResumeRequested()
        case c.TerminateRun():
            return task_event.Terminated()


def _run(ws: WorkingSet, namespace: str, run_id: str) -> Task:
    """Return a run; an activity is none."""
    task = ws.tasks.get((namespace, run_id))
    if task is None or task.kind is not TaskKind.WORKFLOW or is_without_journal(task):
        raise not_found("Run", run_id)
    return task


def is_without_journal(task: Task) -> bool:
    """Tell whether an earlier version, which knew no journals, has stored a task as a run."""
    return task.kind is TaskKind.WORKFLOW and task.link is None
