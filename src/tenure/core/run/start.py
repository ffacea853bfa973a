"""From what a client asks for to a run: checks, and the task that it becomes."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import check
from tenure.core.run.record import NOT_BEGUN, RunLink
from tenure.core.task import deadline, enqueue
from tenure.core.task.record import AttemptProgress, NewTask, Task, TaskKind
from tenure.errors import InvalidArgument


def check_new(new: NewTask) -> None:
    """Raise the typed error for the first thing that is wrong with a request."""
    spec = new.spec
    check.task_id(new.id, "runId")
    if spec.kind is not TaskKind.WORKFLOW:
        message = "Only a workflow is started as a run."
        raise InvalidArgument(message, field="kind")
    # The clean-up of a run may sleep for days, and its steps say themselves how long they take.
    for field, value in (
        ("startToCloseMs", spec.start_to_close_ms),
        ("heartbeatTimeoutMs", spec.heartbeat_timeout_ms),
    ):
        if value:
            message = f"A run has no {field}. Use scheduleToCloseMs for all of it."
            raise InvalidArgument(message, field=field)
    enqueue.check_request(new)
    enqueue.check_spec(spec)


def create(
    new: NewTask, *, namespace: str, now_ms: int, journal_id: str, external_id: str = ""
) -> Task:
    """Return the run that a checked request becomes, with a journal that has nothing in it."""
    link = RunLink(journal_id=journal_id, external_id=external_id or None)
    return _begun(enqueue.create(new, namespace=namespace, now_ms=now_ms), link)


def again(old: Task, *, task_id: str, now_ms: int, journal_id: str) -> Task:
    """Return a new run with the request of a finished one; nothing of its journal is kept."""
    return _begun(
        enqueue.again(old, task_id=task_id, now_ms=now_ms), RunLink(journal_id=journal_id)
    )


def _begun(task: Task, link: RunLink) -> Task:
    started = replace(
        task, link=link, progress=AttemptProgress(ready_at_ms=task.run_at_ms, run=NOT_BEGUN)
    )
    return deadline.armed(started)
