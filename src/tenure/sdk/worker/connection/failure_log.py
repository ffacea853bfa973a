"""Logs failed attempts after the server's answer, which says whether the task is retried."""

from __future__ import annotations

import logging
from typing import Final

from tenure.v1 import task_pb2

log = logging.getLogger("tenure.worker")

_AFTER: Final[dict[int, tuple[int, str]]] = {
    task_pb2.TASK_STATE_PENDING: (logging.WARNING, " and is retried"),
    task_pb2.TASK_STATE_PAUSED: (logging.WARNING, " and is paused"),
    task_pb2.TASK_STATE_CANCELLED: (logging.WARNING, " and is cancelled"),
    task_pb2.TASK_STATE_FAILED: (logging.ERROR, ", its last"),
}
# The report was repeated, or the server had ended the attempt before.
_OTHERWISE: Final = (logging.WARNING, ", which had ended already")


def log_failure(task_type: str, finish: task_pb2.TaskFinish, state: int) -> None:
    """Log one failed attempt; ``state`` is the state of its task after it."""
    error = finish.error
    if error.category == task_pb2.ERROR_CATEGORY_TIMEOUT and not error.stack_trace:
        # The worker ended it because of a timeout, and logged that already.
        return
    level, after = _AFTER.get(state, _OTHERWISE)
    trace = error.stack_trace.rstrip()
    # The type of an error without a message is its message.
    what = f"{error.type}: {error.message}" if error.type != error.message else error.type
    log.log(
        level,
        "Task %s (%s) failed in attempt %d%s: %s%s",
        *(finish.task_id, task_type, finish.attempt, after, what, f"\n{trace}" if trace else ""),
        extra={
            "task_id": finish.task_id,
            "task_type": task_type,
            "attempt": finish.attempt,
            "error_type": error.type,
            "stack_trace": trace,
        },
    )
