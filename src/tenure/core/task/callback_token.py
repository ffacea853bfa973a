"""The task token of an attempt that an endpoint works on: whom it names, and how long it lives."""

from __future__ import annotations

from tenure.core.access.task_token import Claims, Purpose
from tenure.core.limits import CALLBACK_BEATS_PER_TOKEN, CALLBACK_TOKEN_MS_MAX
from tenure.core.task import deadline
from tenure.core.task.callback import CallbackTimes
from tenure.core.task.record import Task

_DEFAULT = CallbackTimes()


def times(task: Task) -> CallbackTimes:
    """Return the times of the endpoint that has the present attempt."""
    callback = task.progress.callback
    return _DEFAULT if callback is None else callback.times


def run_id(task: Task) -> str:
    """Return the run that a task belongs to; one without a run stands for itself."""
    return task.place.run_id or task.id


def life_ms(task: Task, now_ms: int) -> int:
    """Return how long a token lives: as its endpoint says, and to the end of its attempt.

    An attempt may last longer than any token: then its heartbeats renew it.
    """
    ends_at_ms = deadline.attempt_ends_at_ms(task)
    needed_ms = ends_at_ms + task.spec.cancel_grace_ms - now_ms if ends_at_ms else 0
    return min(max(times(task).token_ms, needed_ms), CALLBACK_TOKEN_MS_MAX)


def claims(task: Task, now_ms: int) -> Claims:
    """Return what the token of the present attempt says."""
    return Claims(
        purpose=Purpose.CALLBACK,
        namespace=task.namespace,
        run_id=run_id(task),
        task_id=task.id,
        attempt=task.attempt,
        expires_at_ms=now_ms + life_ms(task, now_ms),
        issued_at_ms=now_ms,
    )


def is_renewal_due(given: Claims, now_ms: int) -> bool:
    """Return whether half of the life of a token is over."""
    return 2 * now_ms >= given.issued_at_ms + given.expires_at_ms


def interval_ms(task: Task, now_ms: int) -> int:
    """Return how often the process sends heartbeats: often enough for timeout and token."""
    own = times(task)
    spec = task.spec
    timeout_ms = deadline.heartbeat_timeout_ms(spec, task.progress) or own.heartbeat_timeout_ms
    wanted_ms = spec.heartbeat_interval_ms or own.heartbeat_interval_ms
    most_ms = min(timeout_ms // 2, life_ms(task, now_ms) // CALLBACK_BEATS_PER_TOKEN)
    return max(1, min(wanted_ms, most_ms))
