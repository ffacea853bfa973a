"""Runs that are made from finished ones: with the first entries of their journals."""

from __future__ import annotations

from tenure.core.journal.numbering import JournalEnd
from tenure.core.run import retry as rules
from tenure.core.task import damage
from tenure.core.task.record import TERMINAL, Task, TaskKind
from tenure.core.task.refusal import wrong_state
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.run import audit, external_id
from tenure.engine.run import command as c
from tenure.engine.task.handler import not_found
from tenure.errors import AlreadyExists
from tenure.store.table.journal_copy import JournalCopy


def retry_run(ws: WorkingSet, command: c.RetryRun) -> c.Retried:
    """Store a new run, whose journal is copied by the same transaction; a repeat finds it."""
    old = _finished(ws, command)
    known = ws.tasks.get((command.namespace, command.new_run_id))
    if known is not None:
        if known.spec.retry_of != old.id:
            message = f"Task {known.id} already exists. Use another run id."
            raise AlreadyExists(message)
        return c.Retried(known.id, known.state, is_new=False, kept_count=command.kept_count)
    ws.check_enabled(command.namespace)
    _check_external_id(ws, command)
    assert old.link is not None
    assert old.link.journal_id is not None
    journal_id = ws.clock.new_id()
    task = rules.create(
        old,
        task_id=command.new_run_id,
        now_ms=ws.now_ms,
        journal_id=journal_id,
        kept=command.kept_count,
    )
    ws.tasks.add(task)
    key = (task.namespace, task.id)
    end = JournalEnd(journal_id, command.kept_count, command.kept_bytes)
    ws.journals.ends[key] = ws.journals.found_ends[key] = end
    if command.kept_count:
        groups = tuple([(each, ws.clock.new_id()) for each in command.group_keys])
        copy = JournalCopy(old.link.journal_id, journal_id, command.kept_count, task.id, groups)
        ws.rows.journal_copies.add(copy)
    if command.external_id:
        external_id.give(ws, command.namespace, command.external_id, task)
    audit.note_retry(ws, command.actor, old=old, new=task)
    return c.Retried(task.id, task.state, is_new=True, kept_count=command.kept_count)


def _finished(ws: WorkingSet, command: c.RetryRun) -> Task:
    old = ws.tasks.get((command.namespace, command.run_id))
    if old is None or old.kind is not TaskKind.WORKFLOW or old.link is None:
        raise not_found("Run", command.run_id)
    if old.state not in TERMINAL:
        raise wrong_state(old).to_error()
    if damage.is_request_lost(old):
        raise damage.refusal(old).to_error()
    return old


def _check_external_id(ws: WorkingSet, command: c.RetryRun) -> None:
    """Refuse a run whose external id another live run has by now: it cannot move."""
    owner = external_id.live_owner_of(ws, command.namespace, command.external_id)
    if owner is not None:
        message = (
            f"The external id {command.external_id!r} of run {command.run_id} belongs to run "
            f"{owner.id} now, which is {owner.state}. Wait for its end, or end it."
        )
        raise AlreadyExists(message)
