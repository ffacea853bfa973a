"""Log lines for operators about damaged data."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from tenure.core.task.record import Task

log = structlog.get_logger("tenure.engine")


def note_damage(tasks: Iterable[Task]) -> None:
    """Log the tasks with a damaged part, without its content."""
    for task in tasks:
        if task.damaged:
            log.error(
                "task.damaged",
                namespace=task.namespace,
                task_id=task.id,
                parts=",".join(task.damaged),
                state=task.state.value,
            )
