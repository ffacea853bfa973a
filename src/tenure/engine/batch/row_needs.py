"""What each command needs to have loaded: pure, one function per command type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tenure.core.task.enqueue_window import NOBODY, EnqueueWindow
from tenure.engine.access.command import (
    CreateKey,
    CreateNamespace,
    RevokeKey,
    SetNamespace,
    SetQueue,
)
from tenure.engine.command import AnyCommand
from tenure.engine.task.command import (
    CancelTask,
    ClaimTasks,
    CompleteById,
    ConfirmTasks,
    EnqueueTasks,
    FinishTasks,
    HeartbeatTasks,
    PauseTask,
    ProcessDue,
    ResumeTask,
    RetryTask,
    ReturnUndelivered,
    SignalCancels,
    TerminateTask,
)
from tenure.engine.worker.command import (
    CloseSession,
    DeregisterWorker,
    DrainWorker,
    EvictWorker,
    FailCall,
    JudgeLeases,
    OpenSession,
    RegisterWorker,
    ReleaseHeldTasks,
    ReportHeld,
    SpareWorkers,
)
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
    due: ProcessDue | None = None
    judge: JudgeLeases | None = None


def gather(commands: list[AnyCommand], window: EnqueueWindow = NOBODY) -> Needs:
    """Return what a batch needs."""
    needs = Needs(window=window)
    for command in commands:
        _BY_TYPE[type(command)](needs, command)
    needs.tasks |= needs.births
    return needs


def _enqueue(needs: Needs, command: EnqueueTasks) -> None:
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
    command: ConfirmTasks | HeartbeatTasks | SignalCancels | ReturnUndelivered,
) -> None:
    namespace = command.namespace
    for item in command.items:
        needs.tasks.add((namespace, item.task_id))


def _report(needs: Needs, command: ConfirmTasks | HeartbeatTasks) -> None:
    _items(needs, command)
    _speaker(needs, command)


def _speaker(needs: Needs, command: ConfirmTasks | HeartbeatTasks | FinishTasks) -> None:
    if command.speaker is not None and command.worker_id is not None:
        needs.spoken_for.add(command.worker_id)


def _finish(needs: Needs, command: FinishTasks) -> None:
    namespace = command.namespace
    for item in command.items:
        key = (namespace, item.task_id)
        needs.tasks.add(key)
        needs.finishes.append((key, item.attempt))
    _speaker(needs, command)


def _complete(needs: Needs, command: CompleteById) -> None:
    key = (command.namespace, command.finish.task_id)
    needs.tasks.add(key)
    needs.finishes.append((key, command.finish.attempt))


def _task(
    needs: Needs,
    command: CancelTask | PauseTask | ResumeTask | TerminateTask,
) -> None:
    needs.tasks.add((command.namespace, command.task_id))


def _retry(needs: Needs, command: RetryTask) -> None:
    needs.namespaces.add(command.namespace)
    needs.tasks.add((command.namespace, command.task_id))
    needs.births.add((command.namespace, command.new_task_id))


def _register(needs: Needs, command: RegisterWorker) -> None:
    needs.namespaces.add(command.namespace)
    new = command.new
    needs.registrations.append((command.namespace, new.instance_key, new.name))


def _worker(
    needs: Needs,
    command: DrainWorker | DeregisterWorker | EvictWorker | FailCall,
) -> None:
    needs.workers.add(command.worker_id)


def _session(needs: Needs, command: OpenSession) -> None:
    needs.namespaces.add(command.namespace)
    needs.workers.add(command.worker_id)
    needs.leases.add(command.worker_id)
    needs.held_of[command.worker_id] = _ALL
    for ref in command.held:
        needs.tasks.add((command.namespace, ref.task_id))


def _close(needs: Needs, command: CloseSession) -> None:
    needs.workers.add(command.worker_id)
    needs.leases.add(command.worker_id)


def _spare(needs: Needs, command: SpareWorkers) -> None:
    needs.leases |= command.worker_ids


def _report_held(needs: Needs, command: ReportHeld) -> None:
    refs = (*command.bound, *command.unbound)
    if command.held is not None:
        needs.workers.add(command.worker_id)
        needs.held_of[command.worker_id] = _ALL
        refs = (*refs, *command.held)
    for ref in refs:
        needs.tasks.add((command.namespace, ref.task_id))


def _set_queue(needs: Needs, command: SetQueue) -> None:
    needs.namespaces.add(command.namespace)
    needs.queues.add((command.namespace, command.name))


def _create_namespace(needs: Needs, command: CreateNamespace) -> None:
    _administer(needs, command.actor)
    needs.namespaces.add(command.name)


def _set_namespace(needs: Needs, command: SetNamespace) -> None:
    _administer(needs, command.actor)
    needs.administered.add(command.name)


def _create_key(needs: Needs, command: CreateKey) -> None:
    _administer(needs, command.actor)
    needs.namespaces.update(command.namespaces)
    needs.counts_api_keys = True


def _revoke_key(needs: Needs, command: RevokeKey) -> None:
    _administer(needs, command.actor)
    needs.api_keys.add(command.key_id)


def _administer(needs: Needs, actor: str) -> None:
    needs.locks_access = True
    if actor:
        needs.api_keys.add(actor)


def _due(needs: Needs, command: ProcessDue) -> None:
    needs.due = command


def _judge(needs: Needs, command: JudgeLeases) -> None:
    needs.judge = command


def _release(needs: Needs, command: ReleaseHeldTasks) -> None:
    needs.workers.add(command.worker_id)
    needs.ended_leases.add(command.worker_id)
    needs.held_of[command.worker_id] = command.amount


def _nothing(needs: Needs, command: ClaimTasks) -> None:
    """Claims have a plan of their own."""


_ALL: Final = 2**31 - 1
# The command types and their functions agree line by line; a table cannot say so to mypy.
_BY_TYPE: Final[dict[type, Callable[[Needs, Any], None]]] = {
    EnqueueTasks: _enqueue,
    ClaimTasks: _nothing,
    ConfirmTasks: _report,
    HeartbeatTasks: _report,
    FinishTasks: _finish,
    CompleteById: _complete,
    CancelTask: _task,
    PauseTask: _task,
    ResumeTask: _task,
    TerminateTask: _task,
    RetryTask: _retry,
    SignalCancels: _items,
    ReturnUndelivered: _items,
    RegisterWorker: _register,
    DrainWorker: _worker,
    DeregisterWorker: _worker,
    EvictWorker: _worker,
    OpenSession: _session,
    CloseSession: _close,
    SpareWorkers: _spare,
    FailCall: _worker,
    ReportHeld: _report_held,
    SetQueue: _set_queue,
    CreateNamespace: _create_namespace,
    SetNamespace: _set_namespace,
    CreateKey: _create_key,
    RevokeKey: _revoke_key,
    ProcessDue: _due,
    JudgeLeases: _judge,
    ReleaseHeldTasks: _release,
}
