"""Runs that begin anew: what they take along of their journals."""

from __future__ import annotations

from typing import Final

from tenure.core.journal.entry import EntryKind, NewEntry
from tenure.core.task import refusal as task_refusal
from tenure.core.task.event import AttemptContinued
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.task import command as c
from tenure.errors import Rejection
from tenure.store.table.task import TaskKey

_NOTHING: Final = c.Anew(seen=0)


def refusal(
    ws: WorkingSet, key: TaskKey, item: c.Finish, worker_id: str | None
) -> Rejection | None:
    """Refuse a run that begins anew and names what is no signal; a stale report is left alone."""
    is_held = task_refusal.is_held(ws.tasks[key], item.attempt, worker_id)
    if item.anew is None or not is_held or key not in ws.journals.ends:
        return None
    found = {each.pos for each in ws.journals.carried_by(key) if each.kind is EntryKind.SIGNAL}
    missing = [pos for pos in item.anew.keep if pos not in found]
    if not missing:
        return None
    message = f"keep names position {missing[0]}, at which run {key[1]} has no signal."
    return Rejection("invalid_argument", message, {"field": "keep"})


def event(
    ws: WorkingSet, key: TaskKey, item: c.Finish, *, worker_id: str | None, needs_confirmed: bool
) -> AttemptContinued:
    """Return that a run begins anew, with the entries that it takes along in their order."""
    anew = item.anew or _NOTHING
    kept = ws.journals.carried_by(key)
    return AttemptContinued(
        attempt=item.attempt,
        worker_id=worker_id,
        needs_confirmed=needs_confirmed,
        new_journal_id=ws.clock.new_id(),
        input=anew.input,
        encoding=anew.encoding,
        kept=tuple([NewEntry(each.kind, each.key, each.content) for each in kept]),
    )
