"""Why a task is not running now: ordered reasons from the facts that were read about it.

A task has to pass several checks before a worker gets it: its namespace, its own state and time,
pause and limit of its queue, a suitable worker, its place in the line. Reasons are in the order of
these checks. So the first one alone is why it does not run now, and the others apply after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from tenure.core.duration import duration_text
from tenure.core.explain.fact import (
    Facts,
    TaskExplanation,
    WaitingReason,
    counted,
    error_evidence,
    error_text,
    instants,
    shortened,
)
from tenure.core.explain.run_reason import run_waits
from tenure.core.explain.worker_reason import is_kept_by_guard, worker_reasons
from tenure.core.instant import instant_text
from tenure.core.limits import AHEAD_COUNTED_MAX, POISON_LOSSES_MAX
from tenure.core.run.status import status_of
from tenure.core.task import crash_guard, deadline
from tenure.core.task.attempt import CHARGES, Charge, Outcome
from tenure.core.task.record import Task, TaskKind, TaskState
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus

# The names of the deadlines in the evidence; the reason itself mentions START.
_DEADLINES: Final = {
    deadline.DeadlineKind.WAKE: "wakesAt",
    deadline.DeadlineKind.DELIVERY: "deliveryTimeoutAt",
    deadline.DeadlineKind.HEARTBEAT: "heartbeatTimeoutAt",
    deadline.DeadlineKind.CANCEL_GRACE: "cancelGraceEndsAt",
    deadline.DeadlineKind.START_TO_CLOSE: "startToCloseAt",
    deadline.DeadlineKind.SCHEDULE_TO_START: "scheduleToStartAt",
    deadline.DeadlineKind.SCHEDULE_TO_CLOSE: "scheduleToCloseAt",
    deadline.DeadlineKind.RELEASE: "heldUntil",
}


def explain(facts: Facts) -> tuple[WaitingReason, ...]:
    """Return why the task is not running; there is always at least one reason."""
    reasons = list(_BY_STATE[facts.task.state](facts))
    if facts.task.finished_at_ms is None:
        first = reasons[0]
        evidence = first.evidence | _deadlines(facts.task)
        reasons[0] = replace(first, evidence=evidence)
    return tuple(reasons)


def explained(facts: Facts) -> TaskExplanation:
    """Return a task with its reasons; of a run also why what it waits for is not done."""
    task = facts.task
    status = task.state.value if task.kind is TaskKind.ACTIVITY else status_of(task).value
    return TaskExplanation(task, status, explain(facts))


def _pending(facts: Facts) -> Iterator[WaitingReason]:
    reasons = list(_gates(facts))
    yield from reasons
    if facts.ahead_count:
        yield _work_ahead(facts)
    elif not reasons:
        message = "Nothing blocks it: it is handed out next."
        advice = "Check again in a moment. If nothing changes, run tenure doctor."
        yield WaitingReason(
            "next", message, advice, {"queue": facts.task.queue, "type": facts.task.type}
        )


def _paused(facts: Facts) -> Iterator[WaitingReason]:
    what = "task" if facts.task.kind is TaskKind.ACTIVITY else "run"
    message = f"This {what} is paused; it waits to be resumed."
    yield WaitingReason("task_paused", message, f"Resume it: {facts.own_command('resume')}")
    yield from _gates(facts)


def _gates(facts: Facts) -> Iterator[WaitingReason]:
    """Return what blocks a task that no worker holds."""
    task, queue = facts.task, facts.queue
    if facts.is_disabled:
        yield _disabled(facts)
    is_early = not task.line and task.run_at_ms > facts.now_ms
    if is_early:
        yield _not_yet(facts)
    if queue.is_paused:
        advice = f"Resume it: {facts.command(f'tenure queues resume {queue.name}')}"
        message = f"Queue {queue.name} is paused: nothing is handed out from it."
        yield WaitingReason("queue_paused", message, advice, {"queue": queue.name})
    if 0 < queue.concurrency_max <= facts.held_count:
        yield _queue_full(facts)
    yield from worker_reasons(facts)
    if is_kept_by_guard(facts) and not is_early:
        yield _crash_guard(facts)


def _disabled(facts: Facts) -> WaitingReason:
    namespace = facts.task.namespace
    message = f"Namespace {namespace} is disabled: workers get no tasks of it."
    advice = f"Enable it: tenure namespaces enable {namespace}"
    return WaitingReason("namespace_disabled", message, advice, {"namespace": namespace})


def _not_yet(facts: Facts) -> WaitingReason:
    """Return why the task has a time before which it is not handed out."""
    task = facts.task
    outcome = task.last_outcome
    if outcome is not None and CHARGES[outcome] is Charge.INTERRUPTIONS:
        return _crash_guard(facts)
    if outcome in _BACKED_OFF:
        return _backing_off(facts)
    at = instant_text(task.run_at_ms)
    message = f"It is scheduled for {at}, in {_until(facts)}."
    advice = "Wait. To run a task at once, enqueue it without a delay."
    return WaitingReason("not_before", message, advice, {"runAt": at})


_BACKED_OFF: Final = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.UNDELIVERED})


def _until(facts: Facts) -> str:
    return duration_text(facts.task.run_at_ms - facts.now_ms)


def _backing_off(facts: Facts) -> WaitingReason:
    task, progress = facts.task, facts.task.progress
    evidence = {"attempt": str(task.attempt), **instants(nextAttemptAt=task.run_at_ms)}
    if task.last_outcome is Outcome.UNDELIVERED:
        count = progress.undelivered_count
        evidence |= {"outcome": Outcome.UNDELIVERED, "undeliveredCount": str(count)}
        if progress.avoid_worker_id:
            evidence["avoidedWorker"] = progress.avoid_worker_id
        message = (
            f"It was handed out {counted(count, 'time')} in a row and never confirmed; "
            f"the next hand-out is in {_until(facts)}."
        )
        advice = f"Check the worker that did not confirm: {facts.command('tenure workers ls')}"
        return WaitingReason("backing_off", message, advice, evidence)
    most = task.spec.retry.maximum_attempts
    evidence |= {
        "failureCount": str(progress.failure_count),
        "maximumAttempts": str(most) if most else "none",
    }
    which = f"{progress.failure_count} of {most}" if most else f"{progress.failure_count}"
    what = "an error"
    if progress.error is not None:
        what = error_text(progress.error)
        evidence |= error_evidence(progress.error)
    message = f"Attempt {which} ended with {what}; the next one begins in {_until(facts)}."
    show = facts.own_command("show")
    return WaitingReason(
        "backing_off", message, f"If the error will happen again, fix its cause: {show}", evidence
    )


def _crash_guard(facts: Facts) -> WaitingReason:
    task, progress = facts.task, facts.task.progress
    count = progress.loss_count
    evidence = {"lossCount": str(count), "lossesMax": str(POISON_LOSSES_MAX)}
    lost = [each.worker_id for each in facts.losses if each.worker_id]
    if lost:
        evidence["lostWorkers"] = ", ".join(lost)
    message = f"It is suspected of crashing workers: {count} in a row were lost while they ran it."
    size = crash_guard.group_size(progress)
    evidence |= {"groupMax": str(size), "lossesCounted": str(progress.counted_count)}
    others = "no other suspected task"
    if size > 1:
        others = f"at most {counted(size - 1, 'other suspected task')}"
    if task.run_at_ms > facts.now_ms and not task.line:
        evidence |= instants(nextAttemptAt=task.run_at_ms)
        message += f" It is tried again in {_until(facts)}, on a worker that holds {others}."
    else:
        message += f" It waits for a worker that holds {others}."
    left = POISON_LOSSES_MAX - progress.counted_count
    message += f" After {counted(left, 'more counted loss', 'more counted losses')} it fails."
    advice = (
        "Check the logs of the lost workers: memory and exits from native code are the usual "
        f"causes. To cancel it: {facts.own_command('cancel')}"
    )
    return WaitingReason("crash_guard", message, advice, evidence)


def _queue_full(facts: Facts) -> WaitingReason:
    queue = facts.queue
    holders = ", ".join(
        f"{each.task_id} ({each.type}, by {each.worker_name or each.worker_id} since "
        f"{instant_text(each.handed_at_ms)})"
        for each in facts.held
    )
    evidence = {
        "queue": queue.name,
        "limit": str(queue.concurrency_max),
        "heldCount": str(facts.held_count),
        "held": holders,
    }
    message = (
        f"Queue {queue.name} is at its limit: {facts.held_count} of {queue.concurrency_max} tasks "
        "are held by workers."
    )
    advice = (
        "It is handed out when one of them ends. To increase the limit: "
        f"{facts.command(f'tenure queues limit {queue.name} NUMBER')}"
    )
    return WaitingReason("queue_full", message, advice, evidence)


def _work_ahead(facts: Facts) -> WaitingReason:
    task, count = facts.task, facts.ahead_count
    number = f"{count}" if count < AHEAD_COUNTED_MAX else f"At least {count}"
    stand = "task of this type is" if count == 1 else "tasks of this type are"
    message = f"{number} {stand} ahead of it in queue {task.queue}, by priority or by age."
    advice = "Wait, start more workers, or enqueue urgent tasks with a lower priority number."
    evidence = {"aheadCount": str(count), "priority": str(task.priority)}
    return WaitingReason("work_ahead", message, advice, evidence)


def _held(facts: Facts) -> Iterator[WaitingReason]:
    task = facts.task
    who = _holder_name(facts)
    since = instant_text(task.handed_at_ms)
    if task.state is TaskState.RUNNING:
        message = f"It is running: worker {who} got attempt {task.attempt} at {since}."
        advice = f"Wait for it: {facts.command(f'tenure tasks wait {task.id}')}"
    else:
        message = (
            f"It was handed to worker {who} at {since} as attempt {task.attempt}, which has not "
            "confirmed it yet."
        )
        advice = "Wait for the confirmation; without it the task is handed out again."
    evidence = {
        "attempt": str(task.attempt),
        "worker": task.worker_id or "",
        "since": since,
        **_holder_evidence(facts),
        **instants(heartbeatAt=task.progress.beat_at_ms),
    }
    ill = _holder_ill(facts)
    if ill:
        message += f" {ill}"
        advice = f"Check the worker: {facts.command(f'tenure workers show {task.worker_id}')}"
    if task.progress.pause_wanted:
        evidence["pauseWanted"] = "true"
        message += " It will be paused when this attempt ends without a result."
    yield WaitingReason("held", message, advice, evidence)


def _holder_name(facts: Facts) -> str:
    holder = facts.holder
    return (holder.name or holder.id) if holder is not None else facts.task.worker_id or "nobody"


def _holder_evidence(facts: Facts) -> dict[str, str]:
    holder = facts.holder
    if holder is None:
        return {}
    evidence = {"workerStatus": holder.status.value, **instants(workerBeatAt=holder.beat_at_ms)}
    if holder.health is not None:
        evidence["workerHealth"] = holder.health.value
    return evidence


def _holder_ill(facts: Facts) -> str:
    """Return what is wrong with the worker that holds the task."""
    holder = facts.holder
    until_ms = facts.task.progress.release_at_ms
    if until_ms:
        return (
            f"That worker is gone. The task is exclusive and held until {instant_text(until_ms)}, "
            "because the worker may run it until shortly before."
        )
    if holder is None or holder.status is WorkerStatus.OFFLINE:
        return "That worker is gone; the task is put back in a moment."
    if holder.health is None or holder.health is Health.HEALTHY:
        return ""
    return f"That worker is {holder.health}."


def _cancelling(facts: Facts) -> Iterator[WaitingReason]:
    task, progress = facts.task, facts.task.progress
    since = instant_text(progress.cancel_at_ms)
    who = f"worker {_holder_name(facts)}" if task.worker_id else "the program that completes it"
    message = f"A cancel was requested at {since}: {who} has been told to stop."
    if not progress.grace_at_ms:
        message = f"A cancel was requested at {since}: {who} does not know of it yet."
    if progress.cancel_reason:
        message += f" Reason: {shortened(progress.cancel_reason)}."
    advice = f"Wait for its clean-up. To end it without clean-up: {facts.own_command('terminate')}"
    evidence = {"attempt": str(task.attempt), "requestedAt": since, **_holder_evidence(facts)}
    yield WaitingReason("cancelling", message, advice, evidence)


def _waiting(facts: Facts) -> Iterator[WaitingReason]:
    task, progress = facts.task, facts.task.progress
    evidence = {"attempt": str(task.attempt)}
    if progress.is_async:
        since = instant_text(progress.confirmed_at_ms or task.handed_at_ms)
        evidence |= {"for": "completion", "since": since}
        evidence |= instants(heartbeatAt=progress.beat_at_ms)
        message = (
            f"Attempt {task.attempt} started at {since} and is completed from outside its worker."
        )
        command = facts.command(f"tenure tasks complete {task.id} --output JSON")
        yield WaitingReason(
            "waiting", message, f"Complete it with its task token, or: {command}", evidence
        )
        return
    yield from run_waits(facts, explained)


def _finished(facts: Facts) -> Iterator[WaitingReason]:
    task, progress = facts.task, facts.task.progress
    assert task.finished_at_ms is not None
    at = instant_text(task.finished_at_ms)
    evidence = {"state": task.state.upper(), "finishedAt": at, "attempt": str(task.attempt)}
    message, advice = f"It {_ENDS[task.state]} at {at}; it will not run again.", ""
    if task.state is not TaskState.SUCCEEDED:
        noun = "task" if task.kind is TaskKind.ACTIVITY else "run"
        advice = f"To run it again as a new {noun}: {facts.own_command('retry')}"
        if progress.reason is not None:
            evidence["failureReason"] = progress.reason.value
        if progress.error is not None:
            evidence |= error_evidence(progress.error)
            message += f" The last error was {error_text(progress.error)}."
    yield WaitingReason("finished", message, advice, evidence)


_ENDS: Final = {
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "was cancelled",
}


def _deadlines(task: Task) -> dict[str, str]:
    """Return the deadlines that end the task or its attempt."""
    return {
        _DEADLINES[each.kind]: instant_text(each.at_ms)
        for each in deadline.deadlines(task)
        if each.kind in _DEADLINES
    }


_BY_STATE: Final = {
    TaskState.PENDING: _pending,
    TaskState.DISPATCHED: _held,
    TaskState.RUNNING: _held,
    TaskState.CANCELLING: _cancelling,
    TaskState.WAITING: _waiting,
    TaskState.PAUSED: _paused,
    TaskState.SUCCEEDED: _finished,
    TaskState.FAILED: _finished,
    TaskState.CANCELLED: _finished,
}
