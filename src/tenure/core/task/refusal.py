"""The refusals of the task machine, and who may report on an attempt."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenure.core.task.attempt import EXPIRED
from tenure.core.task.callback import is_anothers
from tenure.core.task.effect import StopCause
from tenure.core.task.event import (
    AttemptContinued,
    AttemptDeferred,
    AttemptParked,
    AttemptReport,
    AttemptYielded,
    CancelRequested,
    Confirmed,
    DeliveryAccepted,
    DeliveryRefused,
    EntryAppended,
    HandedOut,
    Heartbeaten,
    ResumeRequested,
    StepsRecorded,
    TaskEvent,
    Terminated,
    WorkerLost,
)
from tenure.core.task.record import ATTEMPT_HELD, TERMINAL, Task, TaskKind, TaskState
from tenure.core.task.rule import Rule
from tenure.core.task.stop import cause_of
from tenure.errors import Rejection

# Every report needs them, and a global is found faster than a member of an enum.
_DISPATCHED: Final = TaskState.DISPATCHED
_ACTIVITY: Final = TaskKind.ACTIVITY
# Reports that no attempt of such a task can make.
_FOREIGN: Final[dict[TaskKind, frozenset[type[AttemptReport]]]] = {
    TaskKind.ACTIVITY: frozenset({AttemptYielded, AttemptParked, AttemptContinued, StepsRecorded}),
    TaskKind.WORKFLOW: frozenset({AttemptDeferred, DeliveryAccepted, DeliveryRefused}),
}


def of_event(task: Task, event: TaskEvent, rule: Rule) -> Rejection | None:
    """Return why something that is not a report is not possible."""
    if task.state not in rule.sources:
        return _impossible(task, event)
    match event:
        case HandedOut():
            # First, because each task is handed out.
            is_possible = bool(task.line)
        case WorkerLost(worker_id=worker_id):
            return None if task.worker_id == worker_id else attempt_mismatch(task, task.attempt)
        case ResumeRequested():
            is_possible = _is_resumable(task)
        case EntryAppended():
            is_possible = task.spec.kind is not _ACTIVITY
        case _:
            return None
    return None if is_possible else wrong_state(task)


def _is_resumable(task: Task) -> bool:
    if task.state is TaskState.PAUSED or task.progress.pause_wanted:
        return True
    run = task.progress.run
    return task.state is TaskState.WAITING and run is not None and run.park is not None


def _impossible(task: Task, event: TaskEvent) -> Rejection:
    if task.state in TERMINAL and isinstance(event, CancelRequested | Terminated):
        return already_terminal(task)
    return wrong_state(task)


def of_report(task: Task, event: AttemptReport, rule: Rule) -> Rejection | None:
    """Check a report against the live attempt: the one place where attempts are compared.

    Without a worker's id, a task token or an API key was used.
    """
    worker_id, state = event.worker_id, task.state
    is_holder = worker_id == task.worker_id or worker_id is None
    may_report = state in ATTEMPT_HELD or task.is_attempt_live
    if event.attempt != task.attempt or not is_holder or not may_report:
        return _stale(task, event)
    is_early = event.needs_confirmed and state is _DISPATCHED
    if is_early or type(event) in _FOREIGN[task.spec.kind] or state not in rule.sources:
        return wrong_state(task)
    if type(event) is Confirmed and event.said is not None:
        return _second_start(task, event.said.worker)
    return None


def _second_start(task: Task, worker: str) -> Rejection | None:
    """Refuse a process that starts what another one has started: both would run it."""
    if not is_anothers(task.progress.callback, worker):
        return None
    return replace(
        wrong_state(task),
        message=f"Attempt {task.attempt} of {task.id} was started by another worker.",
    )


def _stale(task: Task, event: AttemptReport) -> Rejection:
    """Refuse a report on an attempt that is not live, with the reason to stop it, if known."""
    rejection = _stale_code(task, event)
    cause = cause_of(task, event.attempt)
    if cause is StopCause.LOST_LEASE:
        return rejection
    return replace(rejection, fields={**rejection.fields, "reason": cause.value})


def _stale_code(task: Task, event: AttemptReport) -> Rejection:
    if event.attempt == task.attempt and task.last_outcome in EXPIRED:
        if isinstance(event, Heartbeaten):
            return Rejection("task_expired", f"Attempt {event.attempt} of {task.id} has ended.")
    elif task.state in TERMINAL and event.attempt >= task.attempt:
        return already_terminal(task)
    return attempt_mismatch(task, event.attempt)


def is_live(task: Task, attempt: int) -> bool:
    """Return whether ``attempt`` is the one that may still report."""
    return attempt == task.attempt and task.is_attempt_live


def is_held(task: Task, attempt: int, worker_id: str | None) -> bool:
    """Return whether a worker holds this attempt."""
    return task.worker_id == worker_id and is_live(task, attempt)


def attempt_mismatch(task: Task, received: int) -> Rejection:
    """Refuse a report on an attempt that is not live, or that is not the reporter's."""
    expected = task.attempt if task.is_attempt_live else task.attempt + 1
    return Rejection(
        "attempt_mismatch",
        f"Task {task.id}: attempt {received} {_mismatch(task, received)}.",
        {"expected_attempt": expected, "received_attempt": received},
    )


def _mismatch(task: Task, received: int) -> str:
    if not is_live(task, received):
        return "is not the live one"
    if task.worker_id is None:
        return "has left its worker and is completed from outside"
    return "is held by another worker"


def already_terminal(task: Task) -> Rejection:
    """Refuse a change of a finished task."""
    return Rejection(
        "task_already_terminal",
        f"{_noun(task)} {task.id} has already ended: {task.state}.",
        {"state": task.state.upper()},
    )


def wrong_state(task: Task) -> Rejection:
    """Refuse what is not possible in the task's present state."""
    return Rejection(
        "wrong_state",
        f"The call is not possible while {_noun(task).lower()} {task.id} is {task.state}.",
        {"state": task.state.upper()},
    )


def _noun(task: Task) -> str:
    return "Run" if task.kind is TaskKind.WORKFLOW else "Task"
