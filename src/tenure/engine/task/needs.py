"""The rows that task commands need: pure, one function per kind of need."""

from __future__ import annotations

from typing import Final

from tenure.engine.task import command as c
from tenure.store.table.journal import Carried
from tenure.store.table.lock_order import RowSets

_YIELDED: Final = c.FinishKind.YIELDED
_CONTINUED: Final = c.FinishKind.CONTINUED


def enqueue_tasks(needs: RowSets, command: c.EnqueueTasks) -> None:
    """Look up keys, and the ids of tasks that are not certainly recent."""
    namespace = command.namespace
    needs.namespaces.wanted.add(namespace)
    window = needs.tasks.window
    for task in command.tasks:
        if task.idempotency_key:
            needs.keys.wanted.add((namespace, task.idempotency_key))
        if command.is_resend or not window.has(task.id):
            needs.tasks.births.add((namespace, task.id))
        else:
            needs.tasks.has_young = True


def named_tasks(
    needs: RowSets,
    command: c.ConfirmTasks | c.HeartbeatTasks | c.SignalCancels | c.ReturnUndelivered,
) -> None:
    """Lock the tasks that are named."""
    namespace = command.namespace
    for item in command.items:
        needs.tasks.wanted.add((namespace, item.task_id))


def report_tasks(needs: RowSets, command: c.ConfirmTasks | c.HeartbeatTasks) -> None:
    """Lock the tasks, and read the reporting worker: it must be live."""
    named_tasks(needs, command)
    if command.worker_id is not None:
        needs.workers.spoken_for.add(command.worker_id)


def finish_tasks(needs: RowSets, command: c.FinishTasks) -> None:
    """Lock the tasks, and read attempts that have ended before.

    The worker is read only if its key is in doubt: what it completes counts, also when it is over.
    """
    namespace, wanted, finishes = command.namespace, needs.tasks.wanted, needs.attempts.finishes
    for item in command.items:
        key = (namespace, item.task_id)
        wanted.add(key)
        finishes.append((key, item.attempt))
        kind = item.kind
        if kind is _YIELDED or kind is _CONTINUED:
            # What is appended meanwhile may not write the row: only its lock tells.
            needs.tasks.locked.add(key)
            needs.journals.of_runs.add(key)
            if item.anew is not None and kind is _CONTINUED:
                needs.journals.carried[key] = Carried(item.anew.seen, item.anew.keep)
    if command.speaker is not None and command.worker_id is not None:
        needs.workers.spoken_for.add(command.worker_id)


def complete_by_id(needs: RowSets, command: c.CompleteById) -> None:
    """Lock the task, and read its attempt if it has ended before."""
    key = (command.namespace, command.finish.task_id)
    needs.tasks.wanted.add(key)
    needs.attempts.finishes.append((key, command.finish.attempt))


def change_task(
    needs: RowSets, command: c.CancelTask | c.PauseTask | c.ResumeTask | c.TerminateTask
) -> None:
    """Lock one task, and read where its journal ends if it is a run."""
    key = (command.namespace, command.task_id)
    needs.tasks.wanted.add(key)
    needs.journals.of_runs.add(key)


def retry_task(needs: RowSets, command: c.RetryTask) -> None:
    """Lock the finished task, and look up the new one."""
    needs.namespaces.wanted.add(command.namespace)
    needs.tasks.wanted.add((command.namespace, command.task_id))
    needs.tasks.births.add((command.namespace, command.new_task_id))


def process_due(needs: RowSets, command: c.ProcessDue) -> None:
    """Take tasks whose timer has fired."""
    needs.tasks.due_max = command.amount
