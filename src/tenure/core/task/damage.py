"""What follows when a stored part of a task is damaged."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from tenure.core.task.record import TERMINAL, Task, TaskState
from tenure.errors import Rejection


class DamagedPart(enum.StrEnum):
    """A part of a stored task; a damaged one is left out of the record."""

    INPUT = "input"
    OUTPUT = "output"
    # Heartbeat details, counts, and the error of the last attempt.
    PROGRESS = "progress"
    OPTIONS = "options"
    LABELS = "labels"
    # The columns that say in which state the task is.
    STATE = "state"


_REQUEST: Final = frozenset({DamagedPart.INPUT, DamagedPart.OPTIONS, DamagedPart.LABELS})


def must_fail(task: Task) -> bool:
    """Return whether damage ends a task now. A live attempt got its input before it was damaged."""
    if not task.damaged or task.state in TERMINAL:
        return False
    return task.damaged != (DamagedPart.INPUT,) or not task.is_attempt_live


def is_result_lost(task: Task) -> bool:
    """Return whether the result of a finished task is lost."""
    if DamagedPart.OUTPUT in task.damaged:
        return True
    # A failed task has a reason, also if it failed because of its damage.
    return task.state is TaskState.FAILED and task.progress.reason is None


def is_request_lost(task: Task) -> bool:
    """Return whether the request of a task is lost."""
    return not _REQUEST.isdisjoint(task.damaged)


def describe(parts: Iterable[str]) -> str:
    """Name the damaged parts."""
    return f"Stored data is damaged and was not used: {', '.join(parts)}."


def refusal(task: Task) -> Rejection:
    """Return the refusal for a task whose request is lost."""
    message = f"Task {task.id}: {describe(task.damaged)} Restore a backup, or enqueue it again."
    return Rejection("data_damaged", message, {"reason": ",".join(task.damaged)})
