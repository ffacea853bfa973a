"""What operators and clients do to runs, for the audit log.

Signals are not in it: they are messages of applications, and the journal has them with their
senders.
"""

from __future__ import annotations

from typing import Final

from tenure.core.access.audit import AuditAction
from tenure.core.limits import AUDIT_DETAIL_BYTES_MAX
from tenure.core.task import event as task_event
from tenure.core.task.event import TaskEvent
from tenure.core.task.record import Task, TaskKind
from tenure.engine.batch.working_set import WorkingSet

_ACTIONS: Final[dict[type[TaskEvent], AuditAction]] = {
    task_event.CancelRequested: AuditAction.RUN_CANCEL,
    task_event.PauseRequested: AuditAction.RUN_PAUSE,
    task_event.ResumeRequested: AuditAction.RUN_RESUME,
    task_event.Terminated: AuditAction.RUN_TERMINATE,
}


def note_change(ws: WorkingSet, wish: TaskEvent, actor: str, *, before: Task, after: Task) -> None:
    """Record what was done to a run; what has changed nothing leaves no record."""
    if after.kind is TaskKind.WORKFLOW and after is not before:
        reason = wish.reason if isinstance(wish, task_event.CancelRequested) else ""
        _record(ws, _ACTIONS[type(wish)], actor, after, reason)


def note_retry(ws: WorkingSet, actor: str, *, old: Task, new: Task) -> None:
    """Record that a run was made from a finished one."""
    if old.kind is TaskKind.WORKFLOW:
        _record(ws, AuditAction.RUN_RETRY, actor, old, f"new run {new.id}")


def _record(ws: WorkingSet, action: AuditAction, actor: str, run: Task, more: str) -> None:
    detail = f"{run.type}: {more}" if more else run.type
    cut = detail.encode()[:AUDIT_DETAIL_BYTES_MAX].decode(errors="ignore")
    ws.record(action, actor, run.id, namespaces=(run.namespace,), detail=cut)
