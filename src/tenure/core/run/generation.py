"""A run that begins anew after a failure: with an empty journal, for what failed was recorded."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.run.record import RunProgress
from tenure.core.run.wake_up import run_of, with_run
from tenure.core.task.record import TERMINAL, Task


def begin_anew(task: Task, new_journal_id: str) -> Task:
    """Return a run whose attempt has failed with the journal of its next generation."""
    if task.state in TERMINAL or task.link is None:
        return task
    begun = with_run(task, RunProgress(generation=run_of(task).generation + 1))
    return replace(begun, link=replace(task.link, journal_id=new_journal_id))
