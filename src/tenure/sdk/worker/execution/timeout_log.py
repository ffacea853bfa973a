"""Logs attempts that timed out: the server ends them, and the worker stops their code."""

from __future__ import annotations

import logging
from typing import Final

from tenure.core.duration import duration_text
from tenure.core.task.retry import RetryPolicy, next_delay_ms
from tenure.v1 import task_pb2

log = logging.getLogger("tenure.worker")

# The server's clock of an attempt starts earlier than the worker's.
_NEARLY: Final = 0.9


def log_timeout(task: task_pb2.AssignedTask, took_s: float) -> None:
    """Log that an attempt timed out, by which timeout, and whether the task is retried."""
    name, limit_ms = _expired(task, 1_000 * took_s)
    is_retried = name != "schedule_to_close" and _has_attempts(task)
    log.log(
        logging.WARNING if is_retried else logging.ERROR,
        "Task %s (%s) timed out in attempt %d after %.1f s and is %s: %s is %s.",
        *(task.task_id, task.type, task.attempt, took_s),
        *("retried" if is_retried else "not retried", name, duration_text(limit_ms)),
        extra={"task_id": task.task_id, "task_type": task.type, "attempt": task.attempt},
    )


def _expired(task: task_pb2.AssignedTask, took_ms: float) -> tuple[str, int]:
    """Return which timeout it was, as far as the worker knows, and its length."""
    attempt = ("start_to_close", task.start_to_close_ms)
    total_ms = task.deadline_at_ms - task.handed_at_ms if task.deadline_at_ms else 0
    if 0 < task.start_to_close_ms * _NEARLY <= took_ms:
        return attempt
    if 0 < total_ms * _NEARLY <= took_ms:
        return "schedule_to_close", task.schedule_to_close_ms
    if task.heartbeat_timeout_ms:
        return "heartbeat_timeout", task.heartbeat_timeout_ms
    return attempt


def _has_attempts(task: task_pb2.AssignedTask) -> bool:
    """Return whether the task has another attempt. A timeout itself is always retried."""
    policy = RetryPolicy(maximum_attempts=task.maximum_attempts)
    count = task.failure_count + 1
    return next_delay_ms(policy, failure_count=count, error=None, jitter=0.0) is not None
