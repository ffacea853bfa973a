"""What each command needs to have loaded: pure, one function per command type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tenure.core.task.enqueue_window import NOBODY, EnqueueWindow
from tenure.engine import command as c
from tenure.store.table.task import TaskKey


class Needs(msgspec.Struct):
    """The union over a batch; every set is loaded by one statement, in one lock order.

    ``finishes`` are the attempts that end. ``births`` are the ids of new tasks that have to be
    looked up; those in ``window`` have not.
    ``administered`` namespaces are read even if they are known. Who changes access
    (``locks_access``) does so alone. Workers that are only ``spoken_for`` are not locked.
    """

    queues: set[tuple[str, str]] = msgspec.field(default_factory=set)
    workers: set[str] = msgspec.field(default_factory=set)
    keys: set[tuple[str, str]] = msgspec.field(default_factory=set)
    tasks: set[TaskKey] = msgspec.field(default_factory=set)
    namespaces: set[str] = msgspec.field(default_factory=set)
    leases: set[str] = msgspec.field(default_factory=set)
    ended_leases: set[str] = msgspec.field(default_factory=set)
    held_of: dict[str, int] = msgspec.field(default_factory=dict)
    registrations: list[tuple[str, str, str]] = msgspec.field(default_factory=list)
    finishes: list[tuple[TaskKey, int]] = msgspec.field(default_factory=list)
    births: set[TaskKey] = msgspec.field(default_factory=set)
    api_keys: set[str] = msgspec.field(default_factory=set)
    administered: set[str] = msgspec.field(default_factory=set)
    spoken_for: set[str] = msgspec.field(default_factory=set)
    locks_access: bool = False
    counts_api_keys: bool = False
    window: EnqueueWindow = NOBODY
    has_young: bool = False
    due: c.ProcessDue | None = None
    judge: c.JudgeLeases | None = None


def gather(commands: list[c.WorkCommand], window: EnqueueWindow = NOBODY) -> Needs:
    """Return what a batch needs."""
    needs = Needs(window=window)
    for command in commands:
        _BY_TYPE[type(command)](needs, command)
    needs.tasks |= needs.births
    return needs


def _enqueue(needs: Needs, command: c.EnqueueTasks) -> None:
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


def _items(
    needs: Needs,
    command: c.ConfirmTasks | c.HeartbeatTasks | c.SignalCancels | c.ReturnUndelivered,
) -> None:
    namespace = command.namespace
    for item in command.items:
        needs.tasks.add((namespace, item.task_id))


def _report(needs: Needs, command: c.ConfirmTasks | c.HeartbeatTasks) -> None:
    _items(needs, command)
    _speaker(needs, command)


def _speaker(needs: Needs, command: c.ConfirmTasks | c.HeartbeatTasks | c.FinishTasks) -> None:
    if command.speaker is not None and command.worker_id is not None:
        needs.spoken_for.add(command.worker_id)


def _finish(needs: Needs, command: c.FinishTasks) -> None:
    namespace = command.namespace
    for item in command.items:
        key = (namespace, item.task_id)
        needs.tasks.add(key)
        needs.finishes.append((key, item.attempt))
    _speaker(needs, command)


def _complete(needs: Needs, command: c.CompleteById) -> None:
    key = (command.namespace, command.finish.task_id)
    needs.tasks.add(key)
    needs.finishes.append((key, command.finish.attempt))


def _task(
    needs: Needs,
    command: c.CancelTask | c.PauseTask | c.ResumeTask | c.TerminateTask,
) -> None:
    needs.tasks.add((command.namespace, command.task_id))


def _retry(needs: Needs, command: c.RetryTask) -> None:
    needs.namespaces.add(command.namespace)
    needs.tasks.add((command.namespace, command.task_id))
    needs.births.add((command.namespace, command.new_task_id))


def _register(needs: Needs, command: c.RegisterWorker) -> None:
    needs.namespaces.add(command.namespace)
    new = command.new
    needs.registrations.append((command.namespace, new.instance_key, new.name))


def _worker(
    needs: Needs,
    command: c.DrainWorker | c.DeregisterWorker | c.EvictWorker | c.FailCall,
) -> None:
    needs.workers.add(command.worker_id)


def _session(needs: Needs, command: c.OpenSession) -> None:
    needs.namespaces.add(command.namespace)
    needs.workers.add(command.worker_id)
    needs.leases.add(command.worker_id)
    needs.held_of[command.worker_id] = _ALL
    for ref in command.held:
        needs.tasks.add((command.namespace, ref.task_id))


def _close(needs: Needs, command: c.CloseSession) -> None:
    needs.workers.add(command.worker_id)
    needs.leases.add(command.worker_id)


def _spare(needs: Needs, command: c.SpareWorkers) -> None:
    needs.leases |= command.worker_ids


def _report_held(needs: Needs, command: c.ReportHeld) -> None:
    refs = (*command.bound, *command.unbound)
    if command.held is not None:
        needs.workers.add(command.worker_id)
        needs.held_of[command.worker_id] = _ALL
        refs = (*refs, *command.held)
    for ref in refs:
        needs.tasks.add((command.namespace, ref.task_id))


def _set_queue(needs: Needs, command: c.SetQueue) -> None:
    needs.namespaces.add(command.namespace)
    needs.queues.add((command.namespace, command.name))


def _create_namespace(needs: Needs, command: c.CreateNamespace) -> None:
    _administer(needs, command.actor)
    needs.namespaces.add(command.name)


def _set_namespace(needs: Needs, command: c.SetNamespace) -> None:
    _administer(needs, command.actor)
    needs.administered.add(command.name)


def _create_key(needs: Needs, command: c.CreateKey) -> None:
    _administer(needs, command.actor)
    needs.namespaces.update(command.namespaces)
    needs.counts_api_keys = True


def _revoke_key(needs: Needs, command: c.RevokeKey) -> None:
    _administer(needs, command.actor)
    needs.api_keys.add(command.key_id)


def _administer(needs: Needs, actor: str) -> None:
    needs.locks_access = True
    if actor:
        needs.api_keys.add(actor)


def _due(needs: Needs, command: c.ProcessDue) -> None:
    needs.due = command


def _judge(needs: Needs, command: c.JudgeLeases) -> None:
    needs.judge = command


def _release(needs: Needs, command: c.ReleaseHeldTasks) -> None:
    needs.workers.add(command.worker_id)
    needs.ended_leases.add(command.worker_id)
    needs.held_of[command.worker_id] = command.amount


def _nothing(needs: Needs, command: c.ClaimTasks) -> None:
    """Claims have a plan of their own."""


_ALL: Final = 2**31 - 1
# The command types and their functions agree line by line; a table cannot say so to mypy.
_BY_TYPE: Final[dict[type, Callable[[Needs, Any], None]]] = {
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
