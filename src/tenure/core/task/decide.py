"""The task machine: states, records, events, ``RULES`` and ``decide``.

Nothing outside this module makes a new state of a task. ``decide`` is total and pure: every
event on every task gives a ``Decision`` or a ``Rejection``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, assert_never

from msgspec.structs import replace

from tenure.core.limits import (
    INTERRUPTIONS_MAX,
    UNDELIVERED_BACKOFF_MAX_MS,
    UNDELIVERED_BACKOFF_MIN_MS,
    UNDELIVERED_BEFORE_BACKOFF,
)
from tenure.core.task import attempt_end, crash_guard, deadline, exclusive, retry
from tenure.core.task.attempt import CHARGES, EXPIRED, Charge, Outcome
from tenure.core.task.crash_guard import Loss
from tenure.core.task.effect import Decision, Effect, FollowUp, TellCancel, TellStop, WakeQueue
from tenure.core.task.event import (
    AttemptCancelled,
    AttemptDeferred,
    AttemptFailed,
    AttemptReleased,
    AttemptReport,
    AttemptSucceeded,
    AttemptYielded,
    CancelRequested,
    CancelSignalled,
    Confirmed,
    DamageFound,
    DeliveryMissed,
    Due,
    HandedOut,
    Heartbeaten,
    PauseRequested,
    ResumeRequested,
    TaskEvent,
    TaskLost,
    Terminated,
    Woken,
    WorkerLost,
)
from tenure.core.task.record import (
    NO_PROGRESS,
    TERMINAL,
    AttemptProgress,
    Line,
    Reason,
    Task,
    TaskKind,
    TaskState,
)
from tenure.core.task.refusal import already_terminal, attempt_mismatch, wrong_state
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.task.rule import RULES, Rule
from tenure.errors import Rejection

# What every task meets on its way. Until Python 3.12 a Python function finds the members of an
# enum, which costs as much as calling a small function.
_DISPATCHED: Final = TaskState.DISPATCHED
_SUCCEEDED: Final = TaskState.SUCCEEDED
_SUCCESS: Final = Outcome.SUCCEEDED
_NO_LINE: Final = Line.NONE
_ACTIVITY: Final = TaskKind.ACTIVITY


# To ask whether something is an instance of a record costs five times as much as to look up its
# type, if it is not: hence tables.
_REPORTS: Final = frozenset(event for event in RULES if issubclass(event, AttemptReport))


def decide(task: Task, event: TaskEvent, now_ms: int) -> Decision | Rejection:
    """Return what ``event`` makes of ``task``, or why it is refused."""
    kind = type(event)
    rule = RULES[kind]
    refuse = _report_refusal if kind in _REPORTS else _refusal
    rejection = refuse(task, event, rule)
    if rejection is not None:
        return rejection
    decision = DECIDERS[kind](task, event, now_ms)
    assert decision.task.state in rule.targets
    return decision


def _refusal(task: Task, event: TaskEvent, rule: Rule) -> Rejection | None:
    if task.state in rule.sources:
        return _state_refusal(task, event)
    if task.state in TERMINAL and isinstance(event, CancelRequested | Terminated):
        return already_terminal(task)
    return wrong_state(task)


def _state_refusal(task: Task, event: TaskEvent) -> Rejection | None:
    match event:
        case HandedOut():
            return None if task.line else wrong_state(task)
        case WorkerLost(worker_id=worker_id):
            return None if task.worker_id == worker_id else attempt_mismatch(task, task.attempt)
        case ResumeRequested():
            resumable = task.state is TaskState.PAUSED or task.progress.pause_wanted
            return None if resumable else wrong_state(task)
        case _:
            return None


def _report_refusal(task: Task, event: Any, rule: Rule) -> Rejection | None:  # noqa: ANN401 (a report)
    """Check a report against the live attempt: the one place where attempts are compared.

    Without a worker's name it is a token's or a key's word.
    """
    is_holder = event.worker_id is None or event.worker_id == task.worker_id
    if event.attempt == task.attempt and is_holder and task.is_attempt_live:
        is_early = event.needs_confirmed and task.state is TaskState.DISPATCHED
        foreign = AttemptYielded if task.spec.kind is _ACTIVITY else AttemptDeferred
        is_fitting = not is_early and type(event) is not foreign
        is_possible = task.state in rule.sources and is_fitting
        return None if is_possible else wrong_state(task)
    if event.attempt == task.attempt and task.last_outcome in EXPIRED:
        if isinstance(event, Heartbeaten):
            return Rejection("task_expired", f"Attempt {event.attempt} of {task.id} is over.")
        return attempt_mismatch(task, event.attempt)
    if task.state in TERMINAL and event.attempt >= task.attempt:
        return already_terminal(task)
    return attempt_mismatch(task, event.attempt)


def is_live(task: Task, attempt: int) -> bool:
    """Tell whether ``attempt`` is the one that may still report."""
    return attempt == task.attempt and task.is_attempt_live


def _hand_out(task: Task, event: HandedOut, now_ms: int) -> Decision:
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


def _succeed(task: Task, event: AttemptSucceeded, now_ms: int) -> Decision:
    other = event.output_encoding
    if other and other != task.spec.encoding:
        task = replace(task, progress=replace(task.progress, output_encoding=other))
    return _finish(task, _SUCCEEDED, now_ms, _SUCCESS, event.output)


def _terminate(task: Task, event: Terminated | DamageFound, now_ms: int) -> Decision:
    return _fail(task, event.reason, Outcome.CANCELLED, event.error, now_ms)


def _confirm(task: Task, now_ms: int) -> Task:
    if task.state is TaskState.CANCELLING:
        # The answer to this report carries the signal.
        return _signal(task, now_ms)
    if task.state is not TaskState.DISPATCHED:
        return task
    is_cancelled = task.is_cancel_requested
    progress = replace(task.progress, confirmed_at_ms=now_ms, undelivered_count=0)
    if is_cancelled:
        # The hand-out itself carried the signal, so the grace runs from here.
        progress = replace(progress, grace_at_ms=now_ms)
    state = TaskState.CANCELLING if is_cancelled else TaskState.RUNNING
    return _armed(replace(task, state=state, progress=progress))


def _confirmed(task: Task, event: Confirmed, now_ms: int) -> Decision:
    confirmed = _confirm(task, now_ms)
    if event.is_exclusive and confirmed.worker_id is not None:
        confirmed = _armed(exclusive.confirmed(confirmed, now_ms))
    return Decision(confirmed)


def _heartbeat(task: Task, event: Heartbeaten, now_ms: int) -> Task:
    confirmed = _confirm(task, now_ms)
    old = confirmed.progress
    progress = replace(
        old,
        beat_at_ms=now_ms,
        details=old.details if event.details is None else event.details,
        percent=old.percent if event.percent is None else event.percent,
        message=old.message if event.message is None else event.message,
    )
    return replace(confirmed, progress=progress)


def _signal(task: Task, now_ms: int) -> Task:
    if task.progress.grace_at_ms:
        return task
    return _armed(replace(task, progress=replace(task.progress, grace_at_ms=now_ms)))


def _defer(task: Task, now_ms: int) -> Task:
    confirmed = _confirm(task, now_ms)
    is_cancelling = confirmed.state is TaskState.CANCELLING
    deferred = replace(
        confirmed,
        state=TaskState.CANCELLING if is_cancelling else TaskState.WAITING,
        worker_id=None,
        progress=replace(confirmed.progress, is_async=True),
    )
    return _armed(deferred)


def _yield(task: Task, event: AttemptYielded, now_ms: int) -> Decision:
    if event.wake_seq < task.progress.wake_seq or task.progress.pause_wanted:
        return _return(task, Outcome.YIELDED, now_ms, now_ms)
    ended = attempt_end.end_attempt(task, Outcome.YIELDED)
    progress = replace(ended.progress, wake_at_ms=event.wake_at_ms)
    waiting = replace(ended, state=TaskState.WAITING, worker_id=None, progress=progress)
    return Decision(
        _armed(waiting), ended=attempt_end.record(task, waiting, Outcome.YIELDED, None, now_ms)
    )


def _wake(task: Task, now_ms: int) -> Decision:
    progress = replace(task.progress, wake_seq=task.progress.wake_seq + 1)
    woken = replace(task, progress=progress)
    if task.state is TaskState.WAITING and not task.progress.is_async:
        return _ready(woken, now_ms)
    return Decision(woken)


def _cancel(task: Task, event: CancelRequested, now_ms: int) -> Decision:
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
            cancelling = _armed(replace(requested, state=TaskState.CANCELLING))
            return Decision(cancelling, effects=(tell,))
        case TaskState.WAITING if task.progress.is_async:
            return Decision(_signal(replace(requested, state=TaskState.CANCELLING), now_ms))
        case TaskState.DISPATCHED if task.kind is TaskKind.WORKFLOW and task.attempt > 1:
            # A run that had started gets its clean-up; the confirmation's answer tells it.
            return Decision(requested)
        case _ if task.kind is TaskKind.WORKFLOW and task.attempt > 0 and not task.worker_id:
            # A run that had started is handed out once more for its clean-up.
            return _ready(requested, now_ms)
        case _:
            return _finish(requested, TaskState.CANCELLED, now_ms, Outcome.CANCELLED)


def _pause(task: Task) -> Task:
    if task.is_attempt_live:
        return replace(task, progress=replace(task.progress, pause_wanted=True))
    return _armed(replace(task, state=TaskState.PAUSED, line=Line.NONE))


def _resume(task: Task, now_ms: int) -> Decision:
    if task.state is not TaskState.PAUSED:
        return Decision(replace(task, progress=replace(task.progress, pause_wanted=False)))
    return _ready(task, max(now_ms, task.run_at_ms), now_ms=now_ms)


def _due(task: Task, event: Due, now_ms: int) -> Decision:
    """Look at the row again: a timer is never authoritative."""
    expired = deadline.first_expired(task, now_ms=now_ms, sighted_ms=event.sighted_ms)
    match expired:
        case None:
            return Decision(_rearmed(task, now_ms, event.sighted_ms))
        case deadline.DeadlineKind.START:
            return _ready(task, task.run_at_ms, now_ms=now_ms)
        case deadline.DeadlineKind.WAKE:
            return _wake(task, now_ms)
        case deadline.DeadlineKind.DELIVERY:
            return _undelivered(task, now_ms)
        case deadline.DeadlineKind.RELEASE:
            # What the loss means for the crash guard was noted when its worker was lost.
            return _lose(task, Outcome.WORKER_LOST, None, now_ms)
        case deadline.DeadlineKind.CANCEL_GRACE:
            return _cancel_overdue(task, now_ms)
        case deadline.DeadlineKind.SCHEDULE_TO_START | deadline.DeadlineKind.SCHEDULE_TO_CLOSE:
            return _overdue(task, Reason(expired.name), now_ms)
        case deadline.DeadlineKind.START_TO_CLOSE | deadline.DeadlineKind.HEARTBEAT:
            error = ErrorInfo(ErrorCategory.TIMEOUT, _TIMEOUT_MESSAGES[expired])
            return _fail_attempt(task, error, Outcome.TIMED_OUT, event.jitter, now_ms, expired)
        case _:
            assert_never(expired)


_TIMEOUT_MESSAGES: Final = {
    deadline.DeadlineKind.START_TO_CLOSE: "The attempt ran longer than startToClose.",
    deadline.DeadlineKind.HEARTBEAT: "No heartbeat arrived within heartbeatTimeout.",
}


def _cancel_overdue(task: Task, now_ms: int) -> Decision:
    if task.worker_id is None:
        # Nobody holds what is completed from elsewhere, so nobody failed to stop.
        return _finish(task, TaskState.CANCELLED, now_ms, Outcome.TIMED_OUT)
    error = ErrorInfo(ErrorCategory.CANCELLED, "The cancel grace period is over.")
    return _fail(task, Reason.CANCEL_TIMEOUT, Outcome.CANCEL_TIMEOUT, error, now_ms)


def _overdue(task: Task, reason: Reason, now_ms: int) -> Decision:
    if task.is_cancel_requested:
        return _finish(task, TaskState.CANCELLED, now_ms, Outcome.TIMED_OUT)
    error = ErrorInfo(ErrorCategory.TIMEOUT, f"{reason.value} is over.")
    return _fail(task, reason, Outcome.TIMED_OUT, error, now_ms)


def _fail_attempt(
    task: Task,
    error: ErrorInfo,
    outcome: Outcome,
    jitter: float,
    now_ms: int,
    timeout: deadline.DeadlineKind | None = None,
) -> Decision:
    """End the live attempt with a failure that the retry policy pays for."""
    if task.is_cancel_requested:
        return _finish(task, TaskState.CANCELLED, now_ms, outcome, error=error)
    failures = task.progress.failure_count + 1
    counted = replace(
        task,
        progress=replace(task.progress, failure_count=failures, error=error),
    )
    policy = task.spec.retry
    delay_ms = retry.next_delay_ms(policy, failure_count=failures, error=error, jitter=jitter)
    if delay_ms is None:
        return _fail(counted, _give_up_reason(error, task, timeout), outcome, error, now_ms)
    run_at_ms = now_ms + delay_ms
    if deadline.is_after_close(task, run_at_ms):
        return _fail(counted, Reason.SCHEDULE_TO_CLOSE, outcome, error, now_ms)
    return _return(counted, outcome, run_at_ms, now_ms, error)


def _give_up_reason(error: ErrorInfo, task: Task, timeout: deadline.DeadlineKind | None) -> Reason:
    if timeout is deadline.DeadlineKind.HEARTBEAT:
        return Reason.HEARTBEAT_TIMEOUT
    if timeout is not None:
        return Reason(timeout.name)
    is_retryable = retry.is_retryable(error, task.spec.retry)
    return Reason.RETRIES_EXHAUSTED if is_retryable else Reason.NON_RETRYABLE


def _lose(task: Task, outcome: Outcome, loss: Loss | None, now_ms: int) -> Decision:
    """End an attempt whose worker is gone or no longer knows it; ``None`` if that was noted."""
    assert CHARGES[outcome] is Charge.INTERRUPTIONS
    if task.is_cancel_requested:
        return _finish(task, TaskState.CANCELLED, now_ms, outcome)
    progress = task.progress if loss is None else _with_loss(task, loss, now_ms)
    interruptions = progress.interruption_count + 1
    progress = replace(progress, interruption_count=interruptions)
    lost = replace(task, progress=progress)
    if crash_guard.is_poisoned(progress):
        message = (
            f"{progress.loss_count} workers in a row were lost while they ran this task, "
            f"{progress.counted_count} of them without another suspect and while others lived."
        )
        error = ErrorInfo(ErrorCategory.INFRASTRUCTURE, message)
        return _fail(lost, Reason.POISONED, outcome, error, now_ms)
    if interruptions >= INTERRUPTIONS_MAX:
        message = f"The task was interrupted {interruptions} times."
        error = ErrorInfo(ErrorCategory.INFRASTRUCTURE, message)
        return _fail(lost, Reason.INTERRUPTIONS_EXHAUSTED, outcome, error, now_ms)
    return _return(lost, outcome, now_ms + crash_guard.backoff_ms(progress), now_ms)


def _lose_worker(task: Task, event: WorkerLost, now_ms: int) -> Decision:
    if not exclusive.is_held(task, event):
        return _lose(task, Outcome.WORKER_LOST, event.loss, now_ms)
    held = exclusive.held(task, event)
    if held is task:
        return Decision(task)
    return Decision(_armed(replace(held, progress=_with_loss(held, event.loss, now_ms))))


def _with_loss(task: Task, loss: Loss, now_ms: int) -> AttemptProgress:
    held_ms = max(0, now_ms - task.handed_at_ms)
    return crash_guard.after_loss(task.progress, loss, held_ms=held_ms)


def _undelivered(task: Task, now_ms: int) -> Decision:
    count = task.progress.undelivered_count + 1
    run_at_ms = now_ms
    avoid_worker_id = None
    if count >= UNDELIVERED_BEFORE_BACKOFF:
        doublings = min(count - UNDELIVERED_BEFORE_BACKOFF, 16)
        run_at_ms += min(UNDELIVERED_BACKOFF_MIN_MS << doublings, UNDELIVERED_BACKOFF_MAX_MS)
        avoid_worker_id = task.worker_id
    progress = replace(
        task.progress,
        undelivered_count=count,
        avoid_worker_id=avoid_worker_id,
    )
    return _return(replace(task, progress=progress), Outcome.UNDELIVERED, run_at_ms, now_ms)


def _release(task: Task, now_ms: int) -> Decision:
    """End the live attempt without charge; the task is pending again at once."""
    if task.is_cancel_requested:
        return _finish(task, TaskState.CANCELLED, now_ms, Outcome.RELEASED)
    return _return(task, Outcome.RELEASED, now_ms, now_ms)


def _return(
    task: Task,
    outcome: Outcome,
    run_at_ms: int,
    now_ms: int,
    error: ErrorInfo | None = None,
) -> Decision:
    """End the live attempt and let the task wait for its next one."""
    ended = attempt_end.end_attempt(task, outcome)
    if task.progress.pause_wanted:
        progress = replace(ended.progress, pause_wanted=False)
        paused = _armed(
            replace(
                ended,
                state=TaskState.PAUSED,
                worker_id=None,
                run_at_ms=run_at_ms,
                progress=progress,
            ),
        )
        return Decision(paused, ended=attempt_end.record(task, paused, outcome, error, now_ms))
    back = _ready(ended, run_at_ms, now_ms=now_ms, keep_order=run_at_ms <= now_ms)
    record = attempt_end.record(task, back.task, outcome, error, now_ms)
    effects = back.effects
    if outcome is Outcome.TIMED_OUT and task.worker_id is not None:
        effects = (*effects, TellStop(task.worker_id, task.id, task.attempt))
    return Decision(back.task, ended=record, effects=effects)


def _ready(
    task: Task,
    run_at_ms: int,
    *,
    now_ms: int | None = None,
    keep_order: bool = False,
) -> Decision:
    """Make the task pending: claimable at once, or armed for ``run_at_ms``.

    ``keep_order`` leaves ``run_at_ms`` as it was, so that a task that was taken away from its
    worker keeps its place in the line.
    """
    now_ms = run_at_ms if now_ms is None else now_ms
    is_ready = run_at_ms <= now_ms
    is_guarded = crash_guard.is_suspect(task.progress)
    line = Line.SUSPECT if is_guarded else Line.RETURNED
    pending = _armed(
        replace(
            task,
            state=TaskState.PENDING,
            worker_id=None,
            line=line if is_ready else Line.NONE,
            run_at_ms=task.run_at_ms if keep_order else run_at_ms,
            is_guarded=is_guarded,
            progress=replace(task.progress, ready_at_ms=run_at_ms, wake_at_ms=0),
        ),
    )
    effects = (WakeQueue(task.namespace, task.queue),) if is_ready else ()
    return Decision(pending, effects=effects)


def _fail(
    task: Task,
    reason: Reason,
    outcome: Outcome,
    error: ErrorInfo,
    now_ms: int,
) -> Decision:
    return _finish(task, TaskState.FAILED, now_ms, outcome, reason=reason, error=error)


def _finish(  # noqa: PLR0913 (the parts of one terminal outcome)
    task: Task,
    state: TaskState,
    now_ms: int,
    outcome: Outcome,
    output: bytes | None = None,
    *,
    reason: Reason | None = None,
    error: ErrorInfo | None = None,
) -> Decision:
    """Give the task its one terminal outcome."""
    was_live = task.is_attempt_live
    progress = attempt_end.ended_progress(task, outcome) if was_live else task.progress
    if reason is not None or error is not None:
        progress = replace(progress, reason=reason, error=error or progress.error)
    finished = replace(
        task,
        state=state,
        line=_NO_LINE,
        last_outcome=outcome if was_live else task.last_outcome,
        due_at_ms=None,
        is_guarded=False,
        output=output,
        finished_at_ms=now_ms,
        progress=progress,
    )
    effects: tuple[Effect, ...] = ()
    if task.worker_id is not None and outcome not in _REPORTED:
        effects = (TellStop(task.worker_id, task.id, task.attempt),)
    parent = task.spec.parent_id
    follow_ups = (FollowUp(task.namespace, parent, Woken()),) if parent else ()
    return Decision(finished, effects=effects, follow_ups=follow_ups)


_REPORTED: Final = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.RELEASED})


def _armed(task: Task) -> Task:
    due_at_ms = deadline.next_due_ms(task)
    return task if due_at_ms == task.due_at_ms else replace(task, due_at_ms=due_at_ms)


def _rearmed(task: Task, now_ms: int, sighted_ms: int) -> Task:
    """Arm an early timer again; what may not be judged yet is looked at once that is possible."""
    due_at_ms = deadline.next_due_ms(task, now_ms=now_ms, sighted_ms=sighted_ms)
    return task if due_at_ms == task.due_at_ms else replace(task, due_at_ms=due_at_ms)


# Each takes the event beside it; a table cannot say so to mypy.
DECIDERS: Final[dict[type[TaskEvent], Callable[[Task, Any, int], Decision]]] = {
    HandedOut: _hand_out,
    Confirmed: _confirmed,
    Heartbeaten: lambda task, event, now_ms: Decision(_heartbeat(task, event, now_ms)),
    AttemptSucceeded: _succeed,
    AttemptFailed: lambda task, event, now_ms: _fail_attempt(
        task, event.error, Outcome.FAILED, event.jitter, now_ms
    ),
    AttemptCancelled: lambda task, _, now_ms: _finish(
        task, TaskState.CANCELLED, now_ms, Outcome.CANCELLED
    ),
    AttemptReleased: lambda task, _, now_ms: _release(task, now_ms),
    AttemptDeferred: lambda task, _, now_ms: Decision(_defer(task, now_ms)),
    AttemptYielded: _yield,
    DeliveryMissed: lambda task, _, now_ms: _undelivered(task, now_ms),
    TaskLost: lambda task, _, now_ms: _lose(task, Outcome.LOST_TASK, Loss(at_ms=now_ms), now_ms),
    WorkerLost: _lose_worker,
    CancelRequested: _cancel,
    CancelSignalled: lambda task, _, now_ms: Decision(_signal(task, now_ms)),
    PauseRequested: lambda task, _, _now_ms: Decision(_pause(task)),
    ResumeRequested: lambda task, _, now_ms: _resume(task, now_ms),
    Woken: lambda task, _, now_ms: _wake(task, now_ms),
    Terminated: _terminate,
    DamageFound: _terminate,
    Due: _due,
}
