"""Checks that several commands share. Those of a noun are in its room, in ``check.py``."""

from __future__ import annotations

from typing import Any, Final

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.task.retry import ErrorInfo
from tenure.errors import InvalidArgument, PayloadTooLarge

COUNT_MAX: Final = 2**62


def check_namespace(value: str) -> None:
    """Check a namespace; the edges have made it canonical."""
    if checks.namespace(value) != value:
        message = "namespace must be tenant/workspace here"
        raise InvalidArgument(message, field="namespace")


def check_refs(namespace: str, worker_id: str | None, items: tuple[Any, ...]) -> None:
    """Check a worker, if one is named, and its attempts."""
    check_namespace(namespace)
    if worker_id is not None:
        checks.worker_id(worker_id)
    if len(items) > limits.HELD_SET_MAX:
        message = f"items must have at most {limits.HELD_SET_MAX} entries"
        raise PayloadTooLarge(message, limit=limits.HELD_SET_MAX)
    for item in items:
        checks.task_id(item.task_id, "taskId")
        if item.attempt != 1:
            checks.attempt(item.attempt)


def check_error(error: ErrorInfo) -> None:
    """Check what a worker says of a failure."""
    checks.text(error.message, "error.message", bytes_max=limits.ERROR_MESSAGE_BYTES_MAX)
    checks.text(error.type, "error.type", bytes_max=limits.TEXT_BYTES_MAX)
    checks.text(error.stack_trace, "error.stackTrace", bytes_max=limits.STACK_TRACE_BYTES_MAX)
    if error.details is not None:
        checks.payload(error.details, "error.details")
    if error.next_delay_ms is not None:
        checks.duration_ms(error.next_delay_ms, "error.nextRetryDelayMs", minimum=0)
