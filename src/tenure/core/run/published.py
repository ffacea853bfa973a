"""The state that a run publishes, readable while no worker has the run."""

from __future__ import annotations

from tenure.core.limits import RUN_STATE_BYTES_MAX
from tenure.core.task.record import Task, TaskKind
from tenure.errors import Rejection


def too_large(task: Task, details: bytes | None) -> Rejection | None:
    """Refuse a state that is too large for the row of its run; an activity may say more."""
    if details is None or len(details) <= RUN_STATE_BYTES_MAX or task.kind is TaskKind.ACTIVITY:
        return None
    message = f"The state of a run must be at most {RUN_STATE_BYTES_MAX} bytes."
    return Rejection("payload_too_large", message, {"limit": RUN_STATE_BYTES_MAX})
