"""What task commands need to have loaded: pure, one function per kind of need."""

from __future__ import annotations

from tenure.engine.batch.row_needs import Needs
from tenure.engine.task import command as c


def enqueue_tasks(needs: Needs, command: c.EnqueueTasks) -> None:
    """Look up keys, and the ids of tasks that are not young for sure."""
    namespace = command.namespace
    needs.namespaces.add(namespace)
    window = needs.window
    for task in command.tasks:
        if task.idempotency_key:
            needs.keys.add((namespace, task.idempotency_key))
        if command.is_resend or not window.has(task.id):
            needs.births.add((namespace, task.id))
        else:
            needs.has_young = True


def named_tasks(
    needs: Needs,
    command: c.ConfirmTasks | c.HeartbeatTasks | c.SignalCancels | c.ReturnUndelivered,
) -> None:
    """Lock the tasks that are named."""
    namespace = command.namespace
    for item in command.items:
        needs.tasks.add((namespace, item.task_id))


def report_tasks(needs: Needs, command: c.ConfirmTasks | c.HeartbeatTasks) -> None:
    """Lock the tasks, and read whose worker reports."""
    named_tasks(needs, command)
    _speaker(needs, command)


def _speaker(needs: Needs, command: c.ConfirmTasks | c.HeartbeatTasks | c.FinishTasks) -> None:
    if command.speaker is not None and command.worker_id is not None:
        needs.spoken_for.add(command.worker_id)


def finish_tasks(needs: Needs, command: c.FinishTasks) -> None:
    """Lock the tasks, and read attempts that have ended before."""
    namespace = command.namespace
    for item in command.items:
        key = (namespace, item.task_id)
        needs.tasks.add(key)
        needs.finishes.append((key, item.attempt))
    _speaker(needs, command)


def complete_by_id(needs: Needs, command: c.CompleteById) -> None:
    """Lock the task, and read its attempt if it has ended before."""
    key = (command.namespace, command.finish.task_id)
    needs.tasks.add(key)
    needs.finishes.append((key, command.finish.attempt))


def change_task(
    needs: Needs,
    command: c.CancelTask | c.PauseTask | c.ResumeTask | c.TerminateTask,
) -> None:
    """Lock one task."""
    needs.tasks.add((command.namespace, command.task_id))


def retry_task(needs: Needs, command: c.RetryTask) -> None:
    """Lock the finished task, and look up the new one."""
    needs.namespaces.add(command.namespace)
    needs.tasks.add((command.namespace, command.task_id))
    needs.births.add((command.namespace, command.new_task_id))


def process_due(needs: Needs, command: c.ProcessDue) -> None:
    """Take tasks whose timer has fired."""
    needs.due = command
