"""What is told to operators of stored data that is not as it was written."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from tenure.core.task.record import Task

log = structlog.get_logger("tenure.engine")


def note_damage(tasks: Iterable[Task]) -> None:
    """Log the tasks of which a stored part is damaged, without what is left of it."""
    for task in tasks:
        if task.damaged:
            log.error(
                "task.damaged",
                namespace=task.namespace,
                task_id=task.id,
                parts=",".join(task.damaged),
                state=task.state.value,
            )
