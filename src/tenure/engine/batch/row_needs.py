"""What each command needs to have loaded: pure, one function per command type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tenure.core.task.enqueue_window import NOBODY, EnqueueWindow
from tenure.engine import command as c
from tenure.store.table.lock_order import RowSets


def gather(commands: list[c.WorkCommand], window: EnqueueWindow = NOBODY) -> RowSets:
    """Return the row sets of a batch with what its commands need."""
    needs = RowSets()
    needs.tasks.window = window
    for command in commands:
        _BY_TYPE[type(command)](needs, command)
    return needs


def _enqueue(needs: RowSets, command: c.EnqueueTasks) -> None:
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


def _items(
    needs: RowSets,
    command: c.ConfirmTasks | c.HeartbeatTasks | c.SignalCancels | c.ReturnUndelivered,
) -> None:
    namespace = command.namespace
    for item in command.items:
        needs.tasks.wanted.add((namespace, item.task_id))


def _report(needs: RowSets, command: c.ConfirmTasks | c.HeartbeatTasks) -> None:
    _items(needs, command)
    _speaker(needs, command)


def _speaker(needs: RowSets, command: c.ConfirmTasks | c.HeartbeatTasks | c.FinishTasks) -> None:
    if command.speaker is not None and command.worker_id is not None:
        needs.workers.spoken_for.add(command.worker_id)


def _finish(needs: RowSets, command: c.FinishTasks) -> None:
    namespace = command.namespace
    for item in command.items:
        key = (namespace, item.task_id)
        needs.tasks.wanted.add(key)
        needs.attempts.finishes.append((key, item.attempt))
    _speaker(needs, command)


def _complete(needs: RowSets, command: c.CompleteById) -> None:
    key = (command.namespace, command.finish.task_id)
    needs.tasks.wanted.add(key)
    needs.attempts.finishes.append((key, command.finish.attempt))


def _task(
    needs: RowSets,
    command: c.CancelTask | c.PauseTask | c.ResumeTask | c.TerminateTask,
) -> None:
    needs.tasks.wanted.add((command.namespace, command.task_id))


def _retry(needs: RowSets, command: c.RetryTask) -> None:
    needs.namespaces.wanted.add(command.namespace)
    needs.tasks.wanted.add((command.namespace, command.task_id))
    needs.tasks.births.add((command.namespace, command.new_task_id))


def _register(needs: RowSets, command: c.RegisterWorker) -> None:
    needs.namespaces.wanted.add(command.namespace)
    new = command.new
    needs.workers.registrations.add((command.namespace, new.instance_key, new.name))


def _worker(
    needs: RowSets,
    command: c.DrainWorker | c.DeregisterWorker | c.EvictWorker | c.FailCall,
) -> None:
    needs.workers.wanted.add(command.worker_id)


def _session(needs: RowSets, command: c.OpenSession) -> None:
    needs.namespaces.wanted.add(command.namespace)
    needs.workers.wanted.add(command.worker_id)
    needs.leases.wanted.add(command.worker_id)
    needs.tasks.held_of[command.worker_id] = _ALL
    for ref in command.held:
        needs.tasks.wanted.add((command.namespace, ref.task_id))


def _close(needs: RowSets, command: c.CloseSession) -> None:
    needs.workers.wanted.add(command.worker_id)
    needs.leases.wanted.add(command.worker_id)


def _spare(needs: RowSets, command: c.SpareWorkers) -> None:
    needs.leases.wanted |= command.worker_ids


def _report_held(needs: RowSets, command: c.ReportHeld) -> None:
    refs = (*command.bound, *command.unbound)
    if command.held is not None:
        needs.workers.wanted.add(command.worker_id)
        needs.tasks.held_of[command.worker_id] = _ALL
        refs = (*refs, *command.held)
    for ref in refs:
        needs.tasks.wanted.add((command.namespace, ref.task_id))


def _set_queue(needs: RowSets, command: c.SetQueue) -> None:
    needs.namespaces.wanted.add(command.namespace)
    needs.queues.wanted.add((command.namespace, command.name))


def _create_namespace(needs: RowSets, command: c.CreateNamespace) -> None:
    _administer(needs, command.actor)
    needs.namespaces.wanted.add(command.name)


def _set_namespace(needs: RowSets, command: c.SetNamespace) -> None:
    _administer(needs, command.actor)
    needs.namespaces.administered.add(command.name)


def _create_key(needs: RowSets, command: c.CreateKey) -> None:
    _administer(needs, command.actor)
    needs.namespaces.wanted.update(command.namespaces)
    needs.access.is_counting = True


def _revoke_key(needs: RowSets, command: c.RevokeKey) -> None:
    _administer(needs, command.actor)
    needs.access.wanted.add(command.key_id)


def _administer(needs: RowSets, actor: str) -> None:
    needs.access.is_changing = True
    if actor:
        needs.access.wanted.add(actor)


def _due(needs: RowSets, command: c.ProcessDue) -> None:
    needs.tasks.due_max = command.amount


def _judge(needs: RowSets, command: c.JudgeLeases) -> None:
    needs.leases.judged_max = command.amount


def _release(needs: RowSets, command: c.ReleaseHeldTasks) -> None:
    needs.workers.wanted.add(command.worker_id)
    needs.leases.ended_wanted.add(command.worker_id)
    needs.tasks.held_of[command.worker_id] = command.amount


def _nothing(needs: RowSets, command: c.ClaimTasks) -> None:
    """Claims have a plan of their own."""


_ALL: Final = 2**31 - 1
# The command types and their functions agree line by line; a table cannot say so to mypy.
_BY_TYPE: Final[dict[type, Callable[[RowSets, Any], None]]] = {
    c.EnqueueTasks: _enqueue,
    c.ClaimTasks: _nothing,
    c.ConfirmTasks: _report,
    c.HeartbeatTasks: _report,
    c.FinishTasks: _finish,
    c.CompleteById: _complete,
    c.CancelTask: _task,
    c.PauseTask: _task,
    c.ResumeTask: _task,
    c.TerminateTask: _task,
    c.RetryTask: _retry,
    c.SignalCancels: _items,
    c.ReturnUndelivered: _items,
    c.RegisterWorker: _register,
    c.DrainWorker: _worker,
    c.DeregisterWorker: _worker,
    c.EvictWorker: _worker,
    c.OpenSession: _session,
    c.CloseSession: _close,
    c.SpareWorkers: _spare,
    c.FailCall: _worker,
    c.ReportHeld: _report_held,
    c.SetQueue: _set_queue,
    c.CreateNamespace: _create_namespace,
    c.SetNamespace: _set_namespace,
    c.CreateKey: _create_key,
    c.RevokeKey: _revoke_key,
    c.ProcessDue: _due,
    c.JudgeLeases: _judge,
    c.ReleaseHeldTasks: _release,
}
