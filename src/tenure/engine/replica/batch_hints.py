"""The change hints of a batch: what it changed, with the versions that are stored now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tenure.core.change_hint import EventKind, Hint
from tenure.core.run.status import RunStatus, status_of
from tenure.core.schedule.record import ScheduleState
from tenure.core.task import confirmation
from tenure.core.task.record import Task, TaskKind, TaskState
from tenure.core.worker.record import WorkerStatus
from tenure.engine.batch.working_set import WorkingSet
from tenure.store.table.endpoint import EndpointRows

PAUSED: Final = "PAUSED"
ACTIVE: Final = "ACTIVE"
DISABLED: Final = "DISABLED"
DELETED: Final = "DELETED"
# Until Python 3.12 members of an enum are found by a Python function.
_WORKFLOW: Final = TaskKind.WORKFLOW
_STATES: Final = (TaskState, RunStatus, WorkerStatus, ScheduleState)
# upper() creates a new text for each hint.
_NAMES: Final[dict[str, str]] = {each.value: each.upper() for kind in _STATES for each in kind}


def hints_of(ws: WorkingSet) -> Iterator[Hint]:
    """Return what a batch changed; the write of an existing row has increased its version."""
    for task in ws.tasks.new.values():
        yield _of_task(task, task.version)
    for key, task in ws.tasks.changed.items():
        before = ws.tasks.loaded.get(key)
        is_progress = before is not None and confirmation.is_progress(before, task)
        yield _of_task(task, task.version + 1, is_progress=is_progress)
    if ws.workers.new or ws.workers.changed:
        yield from _workers(ws)
    if ws.queues.changed or ws.namespaces.new or ws.namespaces.changed:
        yield from _places(ws)
    if ws.rows.has_schedules:
        yield from _schedules(ws)
    if ws.rows.has_endpoints:
        yield from _endpoints(ws.rows.endpoints)


def _of_task(task: Task, version: int, *, is_progress: bool = False) -> Hint:
    kind, state = EventKind.TASK, _NAMES[task.state]
    if task.kind is _WORKFLOW:
        kind, state = EventKind.RUN, _NAMES[status_of(task)]
    if is_progress:
        kind = EventKind.PROGRESS
    return Hint(kind, task.namespace, task.id, version, state, task.queue)


def _workers(ws: WorkingSet) -> Iterator[Hint]:
    kind = EventKind.WORKER
    for workers, raised in ((ws.workers.new, 0), (ws.workers.changed, 1)):
        for each in workers.values():
            version = each.version + raised
            yield Hint(kind, each.namespace, each.id, version, _NAMES[each.status], each.queue)


def _schedules(ws: WorkingSet) -> Iterator[Hint]:
    """Return schedules: what fires changes its schedule."""
    kind, schedules = EventKind.SCHEDULE, ws.schedules
    for rows, raised in ((schedules.new, 0), (schedules.changed, 1)):
        for each in rows.values():
            version = each.version + raised
            queue = each.spec.target.queue
            yield Hint(kind, each.namespace, each.id, version, _NAMES[each.state], queue)
    for key, each in schedules.removed.items():
        if key not in schedules:
            queue = each.spec.target.queue
            yield Hint(kind, each.namespace, each.id, each.version + 1, DELETED, queue)


def _endpoints(rows: EndpointRows) -> Iterator[Hint]:
    for endpoints, raised, gone in (
        (rows.new, 0, ""),
        (rows.changed, 1, ""),
        (rows.removed, 1, DELETED),
    ):
        for each in endpoints.values():
            state = gone or (PAUSED if each.pause else ACTIVE)
            version = each.version + raised
            yield Hint(EventKind.ENDPOINT, each.namespace, each.name, version, state, each.queue)


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
