"""A run that begins anew, with a journal of its own: after a failure, or because it wants to."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.journal.entry import EntryKind
from tenure.core.run.record import RunProgress
from tenure.core.run.wake_up import run_of, with_run
from tenure.core.task import attempt_end
from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import Decision
from tenure.core.task.event import AttemptContinued
from tenure.core.task.record import TERMINAL, Task


def begin_anew(task: Task, new_journal_id: str) -> Task:
    """Return a run whose attempt has failed with the journal of its next generation.

    The journal is empty: what failed was recorded.
    """
    if task.state in TERMINAL or task.link is None:
        return task
    begun = with_run(task, RunProgress(generation=run_of(task).generation + 1))
    return replace(begun, link=replace(task.link, journal_id=new_journal_id))


def continue_as_new(task: Task, event: AttemptContinued, now_ms: int) -> Decision:
    """Let a run begin anew with another input, and with what it has not taken of its journal.

    It goes to the end of the line, for there may be no end of its rounds, and no record of them is
    kept. A cancel that its code has seen, and gone on after, is done with.
    """
    progress = replace(task.progress, interruption_count=0)
    if not any(entry.kind is EntryKind.CANCEL for entry in event.kept):
        progress = replace(progress, cancel_at_ms=0, cancel_reason="")
    spec = task.spec
    if event.encoding and event.encoding != spec.encoding:
        spec = replace(spec, encoding=event.encoding)
    given = replace(task, progress=progress, spec=spec, input=event.input)
    if progress.pause_wanted:
        back = attempt_end.give_back(given, Outcome.CONTINUED, now_ms, now_ms)
    else:
        ended = attempt_end.end_attempt(given, Outcome.CONTINUED)
        back = attempt_end.ready(ended, now_ms)
    begun = begin_anew(back.task, event.new_journal_id)
    return Decision(begun, effects=back.effects, entries=event.kept)
