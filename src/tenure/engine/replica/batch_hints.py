"""The hints of a batch: what it changed, with the versions that are stored now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tenure.core.change_hint import EventKind, Hint
from tenure.core.task.record import TaskState
from tenure.core.worker.record import WorkerStatus
from tenure.engine.batch.working_set import WorkingSet

PAUSED: Final = "PAUSED"
ACTIVE: Final = "ACTIVE"
DISABLED: Final = "DISABLED"
# upper() makes a new text for each hint.
_NAMES: Final[dict[str, str]] = {
    each.value: each.upper() for kind in (TaskState, WorkerStatus) for each in kind
}


def hints_of(ws: WorkingSet) -> Iterator[Hint]:
    """Return what a batch changed; the write of a row that was there has raised its version."""
    kind = EventKind.TASK
    for (namespace, task_id), task in ws.new_tasks.items():
        yield Hint(kind, namespace, task_id, task.version, _NAMES[task.state], task.queue)
    for (namespace, task_id), task in ws.changed_tasks.items():
        yield Hint(kind, namespace, task_id, task.version + 1, _NAMES[task.state], task.queue)
    if ws.new_workers or ws.changed_workers:
        yield from _workers(ws)
    if ws.changed_queues or ws.new_namespaces or ws.changed_namespaces:
        yield from _places(ws)


def _workers(ws: WorkingSet) -> Iterator[Hint]:
    kind = EventKind.WORKER
    for workers, raised in ((ws.new_workers, 0), (ws.changed_workers, 1)):
        for each in workers.values():
            version = each.version + raised
            yield Hint(kind, each.namespace, each.id, version, _NAMES[each.status], each.queue)


def _places(ws: WorkingSet) -> Iterator[Hint]:
    """Return queues and namespaces; the latter have no version."""
    for key, queue in ws.changed_queues.items():
        version = queue.version + 1 if key in ws.rows.queues else queue.version
        state = PAUSED if queue.is_paused else ACTIVE
        yield Hint(EventKind.QUEUE, queue.namespace, queue.name, version, state, queue.name)
    for name in ws.new_namespaces:
        yield Hint(EventKind.NAMESPACE, name, name, 0, ACTIVE)
    for name, namespace in ws.changed_namespaces.items():
        state = DISABLED if namespace.is_disabled else ACTIVE
        yield Hint(EventKind.NAMESPACE, name, name, 0, state)
