"""Task commands: each becomes events, and its answer is made from the decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import KEY_KEPT_MS
from tenure.core.run import published
from tenure.core.run import start as run_start
from tenure.core.run.record import Yield
from tenure.core.task import damage, enqueue, enqueue_window
from tenure.core.task import event as task_event
from tenure.core.task.attempt import YIELDS, Outcome
from tenure.core.task.effect import Decision
from tenure.core.task.event import TaskEvent
from tenure.core.task.record import NO_PROGRESS, TERMINAL, NewTask, Task, TaskKind, TaskState
from tenure.core.task.refusal import already_terminal, wrong_state
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.worker import decide as worker_rules
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import WorkDone
from tenure.engine.run import audit, continuation
from tenure.engine.task import command as c
from tenure.engine.worker.judgement import still_sighted_ms
from tenure.errors import AlreadyExists, IdempotencyConflict, NotFound, Rejection, Unavailable
from tenure.store.table.idempotency import Key
from tenure.store.table.task import TaskKey

_NOTHING_SEEN: Final = Yield(seen=0)
_NO_ERROR: Final = ErrorInfo(ErrorCategory.USER_CODE, "")


def not_found(what: str, name: str) -> NotFound:
    """Return that something does not exist, with the same message as if it were another's."""
    return NotFound(f"{what} {name} was not found.")


class Create(Protocol):
    """Makes a task of a request."""

    def __call__(self, new: NewTask, *, namespace: str, now_ms: int) -> Task:
        """Return the task that a checked request becomes."""
        ...


def enqueue_tasks(ws: WorkingSet, command: c.EnqueueTasks) -> tuple[c.Enqueued, ...]:
    """Store tasks, all or nothing."""
    return take_new(ws, command, enqueue.create)


def take_new(ws: WorkingSet, command: c.EnqueueTasks, create: Create) -> tuple[c.Enqueued, ...]:
    """Take in new tasks: everything is looked at before anything is taken in."""
    namespace, tasks, now_ms = command.namespace, ws.tasks, ws.now_ms
    if not ws.namespaces.exists(namespace):
        raise not_found("Namespace", namespace)
    answers: list[c.Enqueued] = []
    accepted: list[Task] = []
    keyed: dict[tuple[str, str], tuple[NewTask, bytes]] = {}
    for new in command.tasks:
        known = None
        if new.idempotency_key or (namespace, new.id) in tasks:
            known = _known(ws, command, new, keyed)
        if known is None:
            if command.is_resend and not new.idempotency_key:
                _check_decided(new.id, now_ms)
            task = create(new, namespace=namespace, now_ms=now_ms)
            accepted.append(task)
            answers.append(c.Enqueued(new.id, task.state, is_new=True))
        else:
            answers.append(known)
    if accepted:
        # A task that was accepted before keeps its answer.
        ws.check_enabled(namespace)
        _take_in(ws, accepted, keyed)
    return tuple(answers)


def is_known(ws: WorkingSet, command: c.EnqueueTasks) -> bool:
    """Tell whether the one task of a request exists already, by its id or its key."""
    (new,) = command.tasks
    return _known(ws, command, new, {}) is not None


def _take_in(
    ws: WorkingSet, accepted: list[Task], keyed: dict[tuple[str, str], tuple[NewTask, bytes]]
) -> None:
    ws.tasks.add_all(accepted)
    if keyed:
        for (namespace, name), (new, digest) in keyed.items():
            keep_key(ws, namespace, name, new.id, digest)


def _check_decided(task_id: str, now_ms: int) -> None:
    """Refuse a marked request while the first one could still run without a look-up."""
    wait_ms = enqueue_window.undecided_ms(task_id, now_ms)
    if wait_ms:
        message = f"The first request for task {task_id} may still arrive. Send this one again."
        raise Unavailable(message, reason="undecided", retry_after_ms=wait_ms)


def _known(
    ws: WorkingSet,
    command: c.EnqueueTasks,
    new: NewTask,
    keyed: dict[tuple[str, str], tuple[NewTask, bytes]],
) -> c.Enqueued | None:
    """Return the answer for a task that exists already, or ``None``."""
    known = ws.tasks.get((command.namespace, new.id))
    if known is not None:
        if command.is_resend:
            return c.Enqueued(known.id, known.state, is_new=False, outcome=known.last_outcome)
        message = f"Task {new.id} already exists. Use another task id."
        raise AlreadyExists(message)
    if not new.idempotency_key:
        return None
    digest = enqueue.content_digest(new)
    key = (command.namespace, new.idempotency_key)
    if key in keyed:
        first, first_digest = keyed[key]
        if first_digest != digest:
            raise _conflict(new, first.id, first, first_digest)
        return c.Enqueued(first.id, TaskState.PENDING, is_new=False)
    row = ws.keys.get(key)
    if row is None or _is_over(row, ws.now_ms):
        keyed[key] = (new, digest)
        return None
    found = ws.tasks.get((command.namespace, row.task_id))
    if row.digest != digest:
        raise _conflict(new, row.task_id, found, row.digest)
    if found is None:
        return c.Enqueued(row.task_id, TaskState.PENDING, is_new=False)
    return c.Enqueued(row.task_id, found.state, is_new=False, outcome=found.last_outcome)


def _is_over(key: Key, now_ms: int) -> bool:
    """Store a key, which lives as long as its task and a day longer."""
    if key.is_task_live:
        return False
    return key.finished_at_ms is None or key.finished_at_ms + KEY_KEPT_MS <= now_ms


def _conflict(
    new: NewTask, task_id: str, first: NewTask | Task | None, first_digest: bytes
) -> IdempotencyConflict:
    """Name the fields in which a request differs from the first with its key, not their values."""
    # A first task that was removed leaves nothing to compare with.
    fields = [] if first is None else enqueue.differing_fields(new, first, first_digest)
    others = {0: "other content", 1: "another value of "}.get(len(fields), "other values of ")
    message = (
        f"The idempotency key {new.idempotency_key!r} was used for task {task_id} with "
        f"{others}{', '.join(fields)}. Use another key, or send the first content. "
        f"(Hash of the content: {first_digest.hex()} then, "
        f"{enqueue.content_digest(new).hex()} now.)"
    )
    named = {"field": fields[0]} if fields else {}
    return IdempotencyConflict(message, task_id=task_id, **named)


def keep_key(ws: WorkingSet, namespace: str, name: str, task_id: str, digest: bytes) -> None:
    """Remember what was asked for under a key."""
    old = ws.keys.get((namespace, name))
    if old is not None:
        ws.keys.removed.setdefault((namespace, name), old)
    new = Key(namespace, name, task_id, digest, None, is_task_live=True, created_at_ms=ws.now_ms)
    ws.keys.add(new)


def report(ws: WorkingSet, key: TaskKey, event: TaskEvent) -> c.ItemAnswer:
    """Apply what is reported on an attempt of a task."""
    if key not in ws.tasks:
        return Rejection("not_found", f"Task {key[1]} was not found.")
    decision = ws.apply(key, event)
    return decision if isinstance(decision, Rejection) else reported(decision.task)


def reported(task: Task) -> c.Reported:
    """Say where a task stands after an accepted report."""
    if task.progress is NO_PROGRESS:
        return _PLAIN_REPORTS[task.state]
    if task.progress.exclusive_at_ms:
        return c.Reported(
            task.state,
            should_cancel=task.is_cancel_requested,
            cancel_reason=task.progress.cancel_reason,
            is_exclusive=True,
        )
    if task.is_cancel_requested and task.state not in TERMINAL:
        reason = task.progress.cancel_reason
        return c.Reported(task.state, should_cancel=True, cancel_reason=reason)
    return _PLAIN_REPORTS[task.state]


_PLAIN_REPORTS: Final = {state: c.Reported(state) for state in TaskState}


def _inactive(ws: WorkingSet, command: c.ConfirmTasks | c.HeartbeatTasks) -> Rejection | None:
    """Return why the worker's reports do not count; without a worker a task token was used."""
    worker_id = command.worker_id
    if worker_id is None:
        return None
    worker = ws.workers.get(worker_id)
    return worker_rules.report_refusal(worker, namespace=command.namespace, worker_id=worker_id)


def _check_speaker(
    ws: WorkingSet, command: c.ConfirmTasks | c.HeartbeatTasks | c.FinishTasks
) -> None:
    """Refuse a key that reports for a worker of another key; an ended worker holds nothing."""
    if command.speaker is None or command.worker_id is None:
        return
    worker = ws.workers.get(command.worker_id)
    if worker is None or worker.namespace != command.namespace:
        return
    refusal = worker_rules.speaker_refusal(worker, command.speaker)
    if refusal is not None:
        raise refusal.to_error()


def confirm_tasks(ws: WorkingSet, command: c.ConfirmTasks) -> tuple[c.ItemAnswer, ...]:
    """Note that a worker really holds its attempts."""
    _check_speaker(ws, command)
    inactive = _inactive(ws, command)
    if inactive is not None:
        return (inactive,) * len(command.items)
    return tuple(
        report(
            ws,
            (command.namespace, item.task_id),
            task_event.Confirmed(
                attempt=item.attempt,
                worker_id=command.worker_id,
                is_exclusive=item in command.exclusive,
                is_answered=command.is_answered,
            ),
        )
        for item in command.items
    )


def heartbeat_tasks(ws: WorkingSet, command: c.HeartbeatTasks) -> tuple[c.ItemAnswer, ...]:
    """Note that attempts make progress."""
    _check_speaker(ws, command)
    inactive = _inactive(ws, command)
    if inactive is not None:
        return (inactive,) * len(command.items)
    return tuple(
        beat(
            ws,
            (command.namespace, item.task_id),
            item,
            command.worker_id,
            is_answered=command.is_answered,
        )
        for item in command.items
    )


def beat(
    ws: WorkingSet,
    key: TaskKey,
    item: c.TaskBeat,
    worker_id: str | None,
    *,
    is_answered: bool = True,
) -> c.ItemAnswer:
    """Note that an attempt makes progress."""
    task = ws.tasks.get(key)
    refusal = None if task is None else published.too_large(task, item.details)
    if refusal is not None:
        return refusal
    event = task_event.Heartbeaten(
        attempt=item.attempt,
        worker_id=worker_id,
        details=item.details,
        percent=item.percent,
        message=item.message,
        said=item.said,
        is_answered=is_answered,
    )
    return report(ws, key, event)


def finish_tasks(ws: WorkingSet, command: c.FinishTasks) -> tuple[c.ItemAnswer, ...]:
    """Take in the ends of attempts; a repeated one gets its first answer again."""
    _check_speaker(ws, command)
    namespace, worker_id = command.namespace, command.worker_id
    return tuple([end(ws, (namespace, item.task_id), item, worker_id) for item in command.items])


def complete_by_id(ws: WorkingSet, command: c.CompleteById) -> c.Reported:
    """Complete the live attempt, or the named one, for a caller with an API key."""
    finish = command.finish
    key = (command.namespace, finish.task_id)
    task = ws.tasks.get(key)
    if task is None:
        raise not_found("Task", finish.task_id)
    if not finish.attempt:
        finish = replace(finish, attempt=task.attempt)
        if not task.is_attempt_live:
            repeated = _first_answer(ws, key, finish)
            if repeated is not None:
                return repeated
            refusal = already_terminal(task) if task.state in TERMINAL else wrong_state(task)
            raise refusal.to_error()
    answer = end(ws, key, finish, None, needs_confirmed=True)
    if isinstance(answer, Rejection):
        raise answer.to_error()
    return answer


def end(
    ws: WorkingSet,
    key: TaskKey,
    item: c.Finish,
    worker_id: str | None,
    *,
    needs_confirmed: bool = False,
) -> c.ItemAnswer:
    """End an attempt; a repeated end gets its first answer again."""
    decision: Decision | Rejection
    if key in ws.tasks:
        if item.anew is not None:
            refusal = continuation.refusal(ws, key, item, worker_id)
            if refusal is not None:
                return refusal
        event = _EVENTS[item.kind](ws, key, item, worker_id, needs_confirmed)
        decision = ws.apply(key, event)
        if isinstance(decision, Decision):
            if item.anew is not None:
                ws.tasks.reinput.add(key)
            return reported(decision.task)
        repeated = _first_answer(ws, key, item)
        if repeated is not None:
            return repeated
    else:
        decision = Rejection("not_found", f"Task {key[1]} was not found.")
    if worker_id is not None:
        ws.refused_workers.add(worker_id)
    return decision


def _first_answer(ws: WorkingSet, key: TaskKey, item: c.Finish) -> c.Reported | None:
    """Return the answer that the same completion got before, if it was accepted."""
    # Also one that this batch has ended: a report may come twice.
    ended = ws.attempts.get((*key, item.attempt))
    if ended is not None:
        same = ended.outcome is _OUTCOMES.get(item.kind) and ended.error == item.error
        return c.Reported(TaskState(ended.state_after)) if same else None
    task = ws.tasks[key]
    if task.attempt != item.attempt:
        return None
    if item.kind in _UNRECORDED:
        return reported(task) if _UNRECORDED[item.kind](task) else None
    if task.state not in TERMINAL or task.last_outcome is not _OUTCOMES[item.kind]:
        return None
    return c.Reported(task.state) if _is_same_end(task, item) else None


# Ends of which no record is kept, and how the task tells that it has ended so.
_UNRECORDED: Final[dict[c.FinishKind, Callable[[Task], bool]]] = {
    c.FinishKind.DEFERRED: lambda task: task.progress.is_async,
    c.FinishKind.YIELDED: lambda task: task.last_outcome in YIELDS,
    c.FinishKind.CONTINUED: lambda task: task.last_outcome is Outcome.CONTINUED,
}


def _is_same_end(task: Task, item: c.Finish) -> bool:
    """Return whether ``item`` repeats how a task ended; the outcome is the same."""
    if task.output != item.output:
        return False
    if item.kind is c.FinishKind.SUCCEEDED:
        return task.output_encoding == (item.output_encoding or task.spec.encoding)
    return item.kind is not c.FinishKind.FAILED or task.progress.error == item.error


_OUTCOMES: Final = {
    c.FinishKind.SUCCEEDED: Outcome.SUCCEEDED,
    c.FinishKind.FAILED: Outcome.FAILED,
    c.FinishKind.CANCELLED: Outcome.CANCELLED,
    c.FinishKind.RELEASED: Outcome.RELEASED,
    c.FinishKind.YIELDED: Outcome.YIELDED,
    c.FinishKind.PARKED: Outcome.PARKED,
    c.FinishKind.CONTINUED: Outcome.CONTINUED,
}

_Make = Callable[[WorkingSet, TaskKey, c.Finish, str | None, bool], TaskEvent]
_EVENTS: Final[dict[c.FinishKind, _Make]] = {
    c.FinishKind.SUCCEEDED: lambda _ws, _key, item, worker_id, needs: task_event.AttemptSucceeded(
        attempt=item.attempt,
        worker_id=worker_id,
        needs_confirmed=needs,
        output=item.output,
        output_encoding=item.output_encoding,
        said=item.said,
    ),
    c.FinishKind.FAILED: lambda ws, key, item, worker_id, needs: task_event.AttemptFailed(
        attempt=item.attempt,
        worker_id=worker_id,
        needs_confirmed=needs,
        error=item.error or _NO_ERROR,
        said=item.said,
        jitter=ws.clock.jitter(),
        new_journal_id="" if ws.tasks[key].link is None else ws.clock.new_id(),
    ),
    c.FinishKind.CANCELLED: lambda _ws, _key, item, worker_id, needs: task_event.AttemptCancelled(
        attempt=item.attempt, worker_id=worker_id, needs_confirmed=needs, said=item.said
    ),
    c.FinishKind.RELEASED: lambda _ws, _key, item, worker_id, needs: task_event.AttemptReleased(
        attempt=item.attempt, worker_id=worker_id, needs_confirmed=needs, said=item.said
    ),
    c.FinishKind.DEFERRED: lambda _ws, _key, item, worker_id, needs: task_event.AttemptDeferred(
        attempt=item.attempt, worker_id=worker_id, needs_confirmed=needs
    ),
    c.FinishKind.YIELDED: lambda ws, key, item, worker_id, needs: task_event.AttemptYielded(
        attempt=item.attempt,
        worker_id=worker_id,
        needs_confirmed=needs,
        wish=item.wish or _NOTHING_SEEN,
        journal_end=ws.journals.ends[key].pos if key in ws.journals.ends else 0,
    ),
    c.FinishKind.PARKED: lambda _ws, _key, item, worker_id, needs: task_event.AttemptParked(
        attempt=item.attempt,
        worker_id=worker_id,
        needs_confirmed=needs,
        error=item.error or _NO_ERROR,
    ),
    c.FinishKind.CONTINUED: lambda ws, key, item, worker_id, needs: continuation.event(
        ws, key, item, worker_id=worker_id, needs_confirmed=needs
    ),
}


def change_task(
    ws: WorkingSet, command: c.CancelTask | c.PauseTask | c.ResumeTask | c.TerminateTask
) -> c.Reported:
    """Run a command of an operator or a client for one task."""
    key = (command.namespace, command.task_id)
    task = ws.tasks.get(key)
    if task is None:
        raise not_found("Task", command.task_id)
    wish = _wish(command)
    decision = ws.apply(key, wish)
    if isinstance(decision, Rejection):
        raise decision.to_error()
    audit.note_change(ws, wish, command.actor, before=task, after=decision.task)
    return reported(decision.task)


def _wish(command: c.CancelTask | c.PauseTask | c.ResumeTask | c.TerminateTask) -> TaskEvent:
    match command:
        case c.CancelTask():
            return task_event.CancelRequested(reason=command.reason)
        case c.PauseTask():
            return task_event.PauseRequested()
        case c.ResumeTask():
            return task_event.ResumeRequested()
        case c.TerminateTask():
            return task_event.Terminated()


def retry_task(ws: WorkingSet, command: c.RetryTask) -> c.Enqueued:
    """Create a new task from a finished one; a repeated request returns the same new task."""
    old = ws.tasks.get((command.namespace, command.task_id))
    if old is None:
        raise not_found("Task", command.task_id)
    if old.state not in TERMINAL:
        raise wrong_state(old).to_error()
    if damage.is_request_lost(old):
        raise damage.refusal(old).to_error()
    known = ws.tasks.get((command.namespace, command.new_task_id))
    if known is not None:
        if known.spec.retry_of != old.id:
            message = f"Task {known.id} already exists. Use another task id."
            raise AlreadyExists(message)
        return c.Enqueued(known.id, known.state, is_new=False)
    ws.check_enabled(command.namespace)
    task = _again(ws, old, command.new_task_id)
    ws.tasks.add(task)
    audit.note_retry(ws, command.actor, old=old, new=task)
    return c.Enqueued(task.id, task.state, is_new=True)


def _again(ws: WorkingSet, old: Task, task_id: str) -> Task:
    """Return a new task with the request of a finished one; a run gets a journal of its own."""
    if old.kind is TaskKind.ACTIVITY:
        return enqueue.again(old, task_id=task_id, now_ms=ws.now_ms)
    journal_id = ws.clock.new_id()
    ws.journals.ends[old.namespace, task_id] = JournalEnd(journal_id)
    return run_start.again(old, task_id=task_id, now_ms=ws.now_ms, journal_id=journal_id)


def signal_cancels(ws: WorkingSet, command: c.SignalCancels) -> WorkDone:
    """Start the grace of cancel requests that reached their workers."""
    count = 0
    for item in command.items:
        event = task_event.CancelSignalled(attempt=item.attempt)
        answer = report(ws, (command.namespace, item.task_id), event)
        count += isinstance(answer, c.Reported)
    return WorkDone(count)


def return_undelivered(ws: WorkingSet, command: c.ReturnUndelivered) -> WorkDone:
    """Put back what was handed out to a receiver that was already gone."""
    count = 0
    for item in command.items:
        event = task_event.DeliveryMissed(attempt=item.attempt, worker_id=command.worker_id)
        answer = report(ws, (command.namespace, item.task_id), event)
        count += isinstance(answer, c.Reported)
    return WorkDone(count)


def process_due(ws: WorkingSet, command: c.ProcessDue) -> WorkDone:
    """Handle each fired timer."""
    mono_ms = ws.clock.monotonic_ms()
    sighted_ms = still_sighted_ms(command, mono_ms=mono_ms, now_ms=ws.now_ms)
    for key in ws.tasks.due:
        event = task_event.Due(sighted_ms=sighted_ms, jitter=ws.clock.jitter())
        ws.apply(key, event)
    return WorkDone(len(ws.tasks.due), has_more=len(ws.tasks.due) >= command.amount)
