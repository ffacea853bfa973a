"""The task machine: ``decide`` says how each event changes a task.

No code outside this room creates a new state of a task. ``decide`` is total and pure: every
event on every task gives a ``Decision`` or a ``Rejection``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tenure.core.task import (
    attempt_end,
    attempt_failure,
    confirmation,
    crash_guard,
    deadline,
    due,
    refusal,
    stop,
)
from tenure.core.task import event as task_event
from tenure.core.task.attempt import Outcome
from tenure.core.task.crash_guard import Loss
from tenure.core.task.effect import Decision, TellCancel
from tenure.core.task.event import TaskEvent
from tenure.core.task.record import NO_PROGRESS, Line, Task, TaskKind, TaskState
from tenure.core.task.rule import RULES, Rule
from tenure.errors import Rejection

# The most frequent states. Until Python 3.12 members of an enum are found by a Python function,
# which costs as much as a call of a small function.
_DISPATCHED: Final = TaskState.DISPATCHED
_SUCCEEDED: Final = TaskState.SUCCEEDED
_SUCCESS: Final = Outcome.SUCCEEDED
_NO_LINE: Final = Line.NONE

_Refuse = Callable[[Task, Any, Rule], Rejection | None]

# A failing isinstance check of a record costs five times as much as a look-up of its type: hence
# tables.
_REPORTS: Final = frozenset(event for event in RULES if issubclass(event, task_event.AttemptReport))


def decide(task: Task, event: TaskEvent, now_ms: int) -> Decision | Rejection:
    """Return how ``event`` changes ``task``, or why it is refused."""
    kind = type(event)
    rule = RULES[kind]
    is_report = kind in _REPORTS
    refuse: _Refuse = refusal.of_report if is_report else refusal.of_event
    rejection = refuse(task, event, rule)
    if rejection is not None:
        return rejection
    decision = DECIDERS[kind](task, event, now_ms)
    assert decision.task.state in rule.targets
    # A worker that reports on its attempt knows about it.
    if task.worker_id is None or (is_report and event.worker_id is not None):  # type: ignore[union-attr]  # every report has one
        return decision
    return stop.with_stop(task, decision)


def _hand_out(task: Task, event: task_event.HandedOut, now_ms: int) -> Decision:
    progress = task.progress
    if progress is not NO_PROGRESS:
        progress = replace(
            progress,
            confirmed_at_ms=0,
            beat_at_ms=0,
            is_sole=task.is_guarded and crash_guard.group_size(progress) == 1,
        )
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


def _succeed(task: Task, event: task_event.AttemptSucceeded, now_ms: int) -> Decision:
    other = event.output_encoding
    if other and other != task.spec.encoding:
        task = replace(task, progress=replace(task.progress, output_encoding=other))
    return attempt_end.finish(task, _SUCCEEDED, now_ms, _SUCCESS, event.output)


def _terminate(
    task: Task, event: task_event.Terminated | task_event.DamageFound, now_ms: int
) -> Decision:
    return attempt_end.fail(task, event.reason, Outcome.CANCELLED, event.error, now_ms)


def _yield(task: Task, event: task_event.AttemptYielded, now_ms: int) -> Decision:
    if event.wake_seq < task.progress.wake_seq or task.progress.pause_wanted:
        return attempt_end.give_back(task, Outcome.YIELDED, now_ms, now_ms)
    ended = attempt_end.end_attempt(task, Outcome.YIELDED)
    progress = replace(ended.progress, wake_at_ms=event.wake_at_ms)
    waiting = replace(ended, state=TaskState.WAITING, worker_id=None, progress=progress)
    return Decision(
        deadline.armed(waiting),
        ended=attempt_end.record(task, waiting, Outcome.YIELDED, None, now_ms),
    )


def _pause(task: Task) -> Task:
    if task.is_attempt_live:
        return replace(task, progress=replace(task.progress, pause_wanted=True))
    return deadline.armed(replace(task, state=TaskState.PAUSED, line=Line.NONE))


def _resume(task: Task, now_ms: int) -> Decision:
    if task.state is not TaskState.PAUSED:
        return Decision(replace(task, progress=replace(task.progress, pause_wanted=False)))
    return attempt_end.ready(task, max(now_ms, task.run_at_ms), now_ms=now_ms)


def _cancel(task: Task, event: task_event.CancelRequested, now_ms: int) -> Decision:
    if task.is_cancel_requested:
        return Decision(task)
    progress = replace(
        task.progress,
        cancel_at_ms=now_ms,
        cancel_reason=event.reason,
        pause_wanted=False,
        wake_seq=task.progress.wake_seq + 1,
    )
    requested = replace(task, progress=progress)
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
        case TaskState.DISPATCHED if task.kind is TaskKind.WORKFLOW and task.attempt > 1:
            # A run that had started gets its clean-up; the answer to the confirmation carries the
            # signal.
            return Decision(requested)
        case _ if task.kind is TaskKind.WORKFLOW and task.attempt > 0 and not task.worker_id:
            # A run that had started is handed out once more for its clean-up.
            return attempt_end.ready(requested, now_ms)
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
    task_event.AttemptFailed: lambda task, event, now_ms: attempt_failure.fail_attempt(
        task, event.error, Outcome.FAILED, event.jitter, now_ms
    ),
    task_event.AttemptCancelled: lambda task, _, now_ms: attempt_end.finish(
        task, TaskState.CANCELLED, now_ms, Outcome.CANCELLED
    ),
    task_event.AttemptReleased: lambda task, _, now_ms: attempt_end.release(task, now_ms),
    task_event.AttemptDeferred: lambda task, _, now_ms: Decision(confirmation.defer(task, now_ms)),
    task_event.AttemptYielded: _yield,
    task_event.DeliveryMissed: lambda task, _, now_ms: attempt_failure.undelivered(task, now_ms),
    task_event.TaskLost: lambda task, _, now_ms: attempt_failure.lose(
        task, Outcome.LOST_TASK, Loss(at_ms=now_ms), now_ms
    ),
    task_event.WorkerLost: attempt_failure.lose_worker,
    task_event.CancelRequested: _cancel,
    task_event.CancelSignalled: lambda task, _, now_ms: Decision(confirmation.signal(task, now_ms)),
    task_event.PauseRequested: lambda task, _, _now_ms: Decision(_pause(task)),
    task_event.ResumeRequested: lambda task, _, now_ms: _resume(task, now_ms),
    task_event.Woken: lambda task, _, now_ms: due.wake(task, now_ms),
    task_event.Terminated: _terminate,
    task_event.DamageFound: _terminate,
    task_event.Due: due.due,
}
