"""The task machine: ``decide`` says how each event changes a task.

No code outside this room creates a new state of a task. ``decide`` is total and pure: every
event on every task gives a ``Decision`` or a ``Rejection``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tenure.core.run import cancel as run_cancel
from tenure.core.run import generation, wake_up
from tenure.core.run.record import RunProgress
from tenure.core.task import (
    attempt_end,
    attempt_failure,
    callback,
    confirmation,
    crash_guard,
    deadline,
    due,
    refusal,
    stop,
)
from tenure.core.task import event as task_event
from tenure.core.task.attempt import Outcome
from tenure.core.task.callback import CallbackAttempt, CallbackReport
from tenure.core.task.crash_guard import Loss
from tenure.core.task.effect import Decision, TellCancel
from tenure.core.task.event import TaskEvent
from tenure.core.task.record import NO_PROGRESS, Line, Task, TaskKind, TaskState
from tenure.core.task.rule import RULES
from tenure.errors import Rejection

# The most frequent states. Until Python 3.12 members of an enum are found by a Python function,
# which costs as much as a call of a small function.
_DISPATCHED: Final = TaskState.DISPATCHED
_SUCCEEDED: Final = TaskState.SUCCEEDED
_SUCCESS: Final = Outcome.SUCCEEDED
_NO_LINE: Final = Line.NONE

# A failing isinstance check of a record costs five times as much as a look-up of its type: hence
# tables.
_REPORTS: Final = frozenset(event for event in RULES if issubclass(event, task_event.AttemptReport))


def decide(task: Task, event: TaskEvent, now_ms: int) -> Decision | Rejection:
    """Return how ``event`` changes ``task``, or why it is refused."""
    kind = type(event)
    rule = RULES[kind]
    is_report = kind in _REPORTS
    if is_report:
        rejection = refusal.of_report(task, event, rule)  # type: ignore[arg-type]  # it is one
    else:
        rejection = refusal.of_event(task, event, rule)
    if rejection is not None:
        return rejection
    if is_report and event.said is not None:  # type: ignore[union-attr]  # every report has it
        task = _noted(task, event.said)  # type: ignore[union-attr]
    decision = DECIDERS[kind](task, event, now_ms)
    assert decision.task.state in rule.targets
    # A worker that reports on its attempt knows about it.
    if task.worker_id is None or (is_report and event.worker_id is not None):  # type: ignore[union-attr]  # every report has one
        return decision
    if is_report and event.said is not None:  # type: ignore[union-attr]
        return stop.with_freed(task, decision)
    return stop.with_stop(task, decision)


def _noted(task: Task, said: CallbackReport) -> Task:
    progress = task.progress
    noted = callback.noted(progress.callback, said)
    if noted is progress.callback:
        return task
    return replace(task, progress=replace(progress, callback=noted))


def _hand_out(task: Task, event: task_event.HandedOut, now_ms: int) -> Decision:
    progress = task.progress
    if progress is not NO_PROGRESS:
        progress = replace(
            progress,
            confirmed_at_ms=0,
            beat_at_ms=0,
            is_sole=task.is_guarded and crash_guard.group_size(progress) == 1,
            run=_begun(progress.run, event.journal_end, now_ms),
        )
    if event.times is not None:
        progress = replace(progress, callback=CallbackAttempt(event.times))
    dispatched = replace(
        task,
        state=_DISPATCHED,
        line=_NO_LINE,
        attempt=task.attempt + 1,
        worker_id=event.worker_id,
        handed_at_ms=now_ms,
        session_no=event.session_no,
        last_outcome=None,
        due_at_ms=deadline.dispatched_due_ms(task.spec, now_ms),
        progress=progress,
    )
    return Decision(dispatched)


def _begun(run: RunProgress | None, journal_end: int, now_ms: int) -> RunProgress | None:
    """Note when a generation of a run was first handed out, and with how much of its journal."""
    if run is None or (run.begun_at_ms and run.handed_pos == journal_end):
        return run
    return replace(run, begun_at_ms=run.begun_at_ms or now_ms, handed_pos=journal_end)


def _succeed(task: Task, event: task_event.AttemptSucceeded, now_ms: int) -> Decision:
    other = event.output_encoding
    if other and other != task.spec.encoding:
        task = replace(task, progress=replace(task.progress, output_encoding=other))
    return attempt_end.finish(task, _SUCCEEDED, now_ms, _SUCCESS, event.output)


def _terminate(
    task: Task, event: task_event.Terminated | task_event.DamageFound, now_ms: int
) -> Decision:
    return attempt_end.fail(task, event.reason, Outcome.CANCELLED, event.error, now_ms)


def _fail(task: Task, event: task_event.AttemptFailed, now_ms: int) -> Decision:
    decision = attempt_failure.fail_attempt(task, event.error, Outcome.FAILED, event.jitter, now_ms)
    if task.spec.kind is TaskKind.ACTIVITY:
        return decision
    return replace(decision, task=generation.begin_anew(decision.task, event.new_journal_id))


def _cancelled(task: Task, now_ms: int) -> Decision:
    if task.spec.kind is TaskKind.WORKFLOW:
        return run_cancel.cancelled(task, now_ms)
    return attempt_end.finish(task, TaskState.CANCELLED, now_ms, Outcome.CANCELLED)


def _pause(task: Task) -> Task:
    if task.is_attempt_live:
        return replace(task, progress=replace(task.progress, pause_wanted=True))
    return deadline.armed(replace(task, state=TaskState.PAUSED, line=Line.NONE))


def _resume(task: Task, now_ms: int) -> Decision:
    if wake_up.is_parked(task):
        return attempt_end.ready(task, now_ms)
    if task.state is not TaskState.PAUSED:
        return Decision(replace(task, progress=replace(task.progress, pause_wanted=False)))
    return attempt_end.ready(task, max(now_ms, task.run_at_ms), now_ms=now_ms)


def _cancel(task: Task, event: task_event.CancelRequested, now_ms: int) -> Decision:
    if task.is_cancel_requested:
        return Decision(task)
    progress = replace(
        task.progress, cancel_at_ms=now_ms, cancel_reason=event.reason, pause_wanted=False
    )
    requested = replace(task, progress=progress)
    if task.kind is TaskKind.WORKFLOW:
        return run_cancel.cancel(requested, event.reason, now_ms)
    match task.state:
        case TaskState.RUNNING:
            assert task.worker_id is not None
            tell = TellCancel(task.worker_id, task.id, task.attempt)
            cancelling = deadline.armed(replace(requested, state=TaskState.CANCELLING))
            return Decision(cancelling, effects=(tell,))
        case TaskState.WAITING if task.progress.is_async:
            return Decision(
                confirmation.signal(replace(requested, state=TaskState.CANCELLING), now_ms)
            )
        case _:
            return attempt_end.finish(requested, TaskState.CANCELLED, now_ms, Outcome.CANCELLED)


# Each function takes the event type next to it; mypy cannot check this in a table.
DECIDERS: Final[dict[type[TaskEvent], Callable[[Task, Any, int], Decision]]] = {
    task_event.HandedOut: _hand_out,
    task_event.Confirmed: confirmation.confirmed,
    task_event.Heartbeaten: lambda task, event, now_ms: Decision(
        confirmation.heartbeat(task, event, now_ms)
    ),
    task_event.AttemptSucceeded: _succeed,
    task_event.AttemptFailed: _fail,
    task_event.AttemptCancelled: lambda task, _, now_ms: _cancelled(task, now_ms),
    task_event.AttemptReleased: lambda task, _, now_ms: attempt_end.release(task, now_ms),
    task_event.AttemptDeferred: lambda task, _, now_ms: Decision(confirmation.defer(task, now_ms)),
    task_event.AttemptYielded: wake_up.give_up_slot,
    task_event.AttemptParked: wake_up.park,
    task_event.AttemptContinued: generation.continue_as_new,
    task_event.StepsRecorded: lambda task, _, _now_ms: Decision(task),
    task_event.DeliveryMissed: lambda task, _, now_ms: attempt_failure.undelivered(task, now_ms),
    task_event.DeliveryAccepted: lambda task, _, now_ms: Decision(
        confirmation.accepted(task, now_ms)
    ),
    task_event.DeliveryRefused: lambda task, event, now_ms: attempt_failure.fail_attempt(
        task, event.error, Outcome.FAILED, 0.5, now_ms
    ),
    task_event.TaskLost: lambda task, _, now_ms: attempt_failure.lose(
        task, Outcome.LOST_TASK, Loss(at_ms=now_ms), now_ms
    ),
    task_event.WorkerLost: attempt_failure.lose_worker,
    task_event.CancelRequested: _cancel,
    task_event.CancelSignalled: lambda task, _, now_ms: Decision(
        confirmation.signal_pushed(task, now_ms)
    ),
    task_event.PauseRequested: lambda task, _, _now_ms: Decision(_pause(task)),
    task_event.ResumeRequested: lambda task, _, now_ms: _resume(task, now_ms),
    task_event.EntryAppended: wake_up.entry_appended,
    task_event.Terminated: _terminate,
    task_event.DamageFound: _terminate,
    task_event.Due: due.due,
}
