"""The ways in which the task machine says no."""

from __future__ import annotations

from tenure.core.task.record import Task
from tenure.errors import Rejection


def attempt_mismatch(task: Task, received: int) -> Rejection:
    """Refuse a report on an attempt that is not live."""
    expected = task.attempt if task.is_attempt_live else task.attempt + 1
    return Rejection(
        "attempt_mismatch",
        f"Task {task.id}: attempt {received} is not the live one.",
        {"expected_attempt": expected, "received_attempt": received},
    )


def already_terminal(task: Task) -> Rejection:
    """Refuse a change of a finished task."""
    return Rejection(
        "task_already_terminal",
        f"Task {task.id} is {task.state}.",
        {"state": task.state.upper()},
    )


def wrong_state(task: Task) -> Rejection:
    """Refuse what is not possible in the task's present state."""
    return Rejection(
        "wrong_state",
        f"Not possible while task {task.id} is {task.state}.",
        {"state": task.state.upper()},
    )
