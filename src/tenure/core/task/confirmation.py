"""Reports of a live attempt that goes on: it is held, its progress, the cancel it received."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.task import deadline, exclusive
from tenure.core.task.effect import Decision
from tenure.core.task.event import Confirmed, Heartbeaten
from tenure.core.task.record import Task, TaskState


def confirm(task: Task, now_ms: int, *, is_answered: bool = True) -> Task:
    """Note that the worker really holds the live attempt; it runs now, or is cancelled."""
    if task.state is TaskState.CANCELLING:
        # The answer to this report carries the signal. A served worker gets it by the next call.
        return signal(task, now_ms) if is_answered else task
    if task.state is not TaskState.DISPATCHED:
        return task
    is_cancelled = task.is_cancel_requested
    progress = replace(task.progress, confirmed_at_ms=now_ms, undelivered_count=0)
    if is_cancelled:
        # The hand-out itself carried the signal, so the grace starts here.
        progress = replace(progress, grace_at_ms=now_ms)
    state = TaskState.CANCELLING if is_cancelled else TaskState.RUNNING
    return deadline.armed(replace(task, state=state, progress=progress))


def confirmed(task: Task, event: Confirmed, now_ms: int) -> Decision:
    """Accept a worker's report that it holds the attempt."""
    confirmed = confirm(task, now_ms, is_answered=event.is_answered)
    if event.is_exclusive and confirmed.worker_id is not None:
        confirmed = deadline.armed(exclusive.confirmed(confirmed, now_ms))
    return Decision(confirmed)


def heartbeat(task: Task, event: Heartbeaten, now_ms: int) -> Task:
    """Note the reported progress of the live attempt."""
    confirmed = confirm(task, now_ms, is_answered=event.is_answered)
    old = confirmed.progress
    progress = replace(
        old,
        beat_at_ms=now_ms,
        details=old.details if event.details is None else event.details,
        percent=old.percent if event.percent is None else event.percent,
        message=old.message if event.message is None else event.message,
    )
    return replace(confirmed, progress=progress)


def is_progress(before: Task, after: Task) -> bool:
    """Return whether heartbeats of the live attempt are all that has happened to a task."""
    if after.state is not before.state or after.attempt != before.attempt:
        return False
    told = after.progress
    progress = replace(
        before.progress,
        beat_at_ms=told.beat_at_ms,
        details=told.details,
        percent=told.percent,
        message=told.message,
    )
    return after == replace(before, progress=progress, due_at_ms=after.due_at_ms)


def defer(task: Task, now_ms: int) -> Task:
    """Let the live attempt be completed from outside; its worker is free."""
    confirmed = confirm(task, now_ms)
    is_cancelling = confirmed.state is TaskState.CANCELLING
    deferred = replace(
        confirmed,
        state=TaskState.CANCELLING if is_cancelling else TaskState.WAITING,
        worker_id=None,
        # No worker holds it any more, so none can be lost with it.
        progress=replace(confirmed.progress, is_async=True, release_at_ms=0, release_lease_ms=0),
    )
    return deadline.armed(deferred)


def accepted(task: Task, now_ms: int) -> Task:
    """Note that an endpoint took the attempt: its process has the endpoint's time to report."""
    known = task.progress.callback
    if known is None or known.accepted_at_ms:
        return task
    callback = replace(known, accepted_at_ms=now_ms)
    return deadline.armed(replace(task, progress=replace(task.progress, callback=callback)))


def signal_pushed(task: Task, now_ms: int) -> Task:
    """Note that a push carried the cancel request; nothing is pushed to an endpoint."""
    return task if task.progress.callback is not None else signal(task, now_ms)


def signal(task: Task, now_ms: int) -> Task:
    """Note that the worker knows of the cancel request; its grace starts here."""
    if task.progress.grace_at_ms:
        return task
    return deadline.armed(replace(task, progress=replace(task.progress, grace_at_ms=now_ms)))
