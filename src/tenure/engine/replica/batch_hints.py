"""The change hints of a batch: what it changed, with the versions that are stored now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tenure.core.change_hint import EventKind, Hint
from tenure.core.task import confirmation
from tenure.core.task.record import TaskState
from tenure.core.worker.record import WorkerStatus
from tenure.engine.batch.working_set import WorkingSet

PAUSED: Final = "PAUSED"
ACTIVE: Final = "ACTIVE"
DISABLED: Final = "DISABLED"
# upper() creates a new text for each hint.
_NAMES: Final[dict[str, str]] = {
    each.value: each.upper() for kind in (TaskState, WorkerStatus) for each in kind
}


def hints_of(ws: WorkingSet) -> Iterator[Hint]:
    """Return what a batch changed; the write of an existing row has increased its version."""
    kind = EventKind.TASK
    for (namespace, task_id), task in ws.tasks.new.items():
        yield Hint(kind, namespace, task_id, task.version, _NAMES[task.state], task.queue)
    for key, task in ws.tasks.changed.items():
        namespace, task_id = key
        before = ws.tasks.loaded.get(key)
        is_progress = before is not None and confirmation.is_progress(before, task)
        kind = EventKind.PROGRESS if is_progress else EventKind.TASK
        yield Hint(kind, namespace, task_id, task.version + 1, _NAMES[task.state], task.queue)
    if ws.workers.new or ws.workers.changed:
        yield from _workers(ws)
    if ws.queues.changed or ws.namespaces.new or ws.namespaces.changed:
        yield from _places(ws)


def _workers(ws: WorkingSet) -> Iterator[Hint]:
    kind = EventKind.WORKER
    for workers, raised in ((ws.workers.new, 0), (ws.workers.changed, 1)):
        for each in workers.values():
            version = each.version + raised
            yield Hint(kind, each.namespace, each.id, version, _NAMES[each.status], each.queue)


def _places(ws: WorkingSet) -> Iterator[Hint]:
    """Return queues and namespaces; the latter have no version."""
    for key, queue in ws.queues.changed.items():
        version = queue.version + 1 if key in ws.queues.loaded else queue.version
        state = PAUSED if queue.is_paused else ACTIVE
        yield Hint(EventKind.QUEUE, queue.namespace, queue.name, version, state, queue.name)
    for name in ws.namespaces.new:
        yield Hint(EventKind.NAMESPACE, name, name, 0, ACTIVE)
    for name, namespace in ws.namespaces.changed.items():
        state = DISABLED if namespace.is_disabled else ACTIVE
        yield Hint(EventKind.NAMESPACE, name, name, 0, state)
