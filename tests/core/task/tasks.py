"""Builders: a task in each state, made by the events that lead there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from tenure.core.run import start as run_start
from tenure.core.run.record import Yield
from tenure.core.task.decide import decide
from tenure.core.task.effect import Decision
from tenure.core.task.enqueue import create
from tenure.core.task.event import (
    AttemptCancelled,
    AttemptDeferred,
    AttemptFailed,
    AttemptParked,
    AttemptReport,
    AttemptSucceeded,
    AttemptYielded,
    CancelRequested,
    CancelSignalled,
    Confirmed,
    Due,
    HandedOut,
    PauseRequested,
    TaskEvent,
    Terminated,
    WorkerLost,
)
from tenure.core.task.record import NewTask, Spec, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.errors import Rejection

T0: Final = 1_000_000
"""When every task here is created and, unless said otherwise, everything happens."""
WORKER: Final = "worker-1"
OTHER: Final = "worker-2"
TASK_ID: Final = "0190a000-0000-7000-8000-000000000001"
OTHER_ID: Final = "0190a000-0000-7000-8000-000000000004"
JOURNAL_ID: Final = "0190a000-0000-7000-8000-000000000002"
NEXT_JOURNAL_ID: Final = "0190a000-0000-7000-8000-000000000003"
NAMESPACE: Final = "acme/default"
SIGHTED: Final = 10**9
"""A server that has been sighted for longer than any period here."""
FAULT: Final = ErrorInfo(ErrorCategory.USER_CODE, "boom", type="ValueError")
FATAL: Final = ErrorInfo(ErrorCategory.DATA_QUALITY, "bad row")

R = TypeVar("R", bound=AttemptReport)


def new(**changes: Any) -> NewTask:
    """Return a request; whatever is no field of its own changes its settings."""
    own = {field: changes.pop(field) for field in NewTask.__struct_fields__ if field in changes}
    spec = Spec(**{"start_to_close_ms": 60_000, **changes})
    return replace(NewTask(id=TASK_ID, type="mail", queue="default", spec=spec), **own)


def fresh(**changes: Any) -> Task:
    request = new(**changes)
    if request.spec.kind is TaskKind.ACTIVITY:
        return create(request, namespace=NAMESPACE, now_ms=T0)
    return run_start.create(request, namespace=NAMESPACE, now_ms=T0, journal_id=JOURNAL_ID)


def fresh_run(**changes: Any) -> Task:
    return fresh(kind=TaskKind.WORKFLOW, **{"start_to_close_ms": 0, **changes})


def decided(task: Task, event: TaskEvent, at_ms: int = T0) -> Decision:
    decision = decide(task, event, at_ms)
    assert isinstance(decision, Decision), decision
    return decision


def after(task: Task, event: TaskEvent, at_ms: int = T0) -> Task:
    return decided(task, event, at_ms).task


def refused(task: Task, event: TaskEvent, at_ms: int = T0) -> Rejection:
    rejection = decide(task, event, at_ms)
    assert isinstance(rejection, Rejection), rejection
    return rejection


def report(kind: type[R], task: Task, **fields: Any) -> R:
    """Return what the holder of the present attempt says."""
    return kind(attempt=task.attempt, worker_id=task.worker_id, **fields)


def due(task: Task, at_ms: int, *, sighted_ms: int = SIGHTED) -> Decision:
    return decided(task, Due(sighted_ms=sighted_ms), at_ms)


def handed(task: Task, at_ms: int = T0, worker_id: str = WORKER) -> Task:
    return after(task, HandedOut(worker_id=worker_id, session_no=1), at_ms)


def confirmed(task: Task, at_ms: int = T0) -> Task:
    return after(task, report(Confirmed, task), at_ms)


def running(at_ms: int = T0, **changes: Any) -> Task:
    """Return a running task that was handed out and confirmed at one instant."""
    return confirmed(handed(fresh(**changes), at_ms), at_ms)


def running_exclusively(at_ms: int = T0, **changes: Any) -> Task:
    task = handed(fresh(**changes), at_ms)
    return after(task, report(Confirmed, task, is_exclusive=True), at_ms)


def held_exclusively(until_ms: int, lease_ms: int = 15_000, **changes: Any) -> Task:
    """Return an exclusive task whose worker was taken offline before its lease was over."""
    lost = WorkerLost(worker_id=WORKER, lease_until_ms=until_ms, lease_ms=lease_ms)
    return after(running_exclusively(**changes), lost)


def running_run(**changes: Any) -> Task:
    return confirmed(handed(fresh_run(**changes)))


def waiting_run(wake_at_ms: int = 0, **changes: Any) -> Task:
    task = running_run(**changes)
    return yielded(task, wake_at_ms=wake_at_ms, wake_key="sleep" if wake_at_ms else "")


def parked_run(**changes: Any) -> Task:
    task = running_run(**changes)
    return after(task, report(AttemptParked, task, error=FATAL))


def waiting_async(**changes: Any) -> Task:
    task = running(**changes)
    return after(task, report(AttemptDeferred, task))


def cancelling(**changes: Any) -> Task:
    """Return a task whose worker has not heard of the cancel request yet."""
    return after(running(**changes), CancelRequested(reason="enough"))


def cancelling_told(**changes: Any) -> Task:
    task = cancelling(**changes)
    return after(task, report(CancelSignalled, task))


def lost(task: Task, at_ms: int = T0) -> Task:
    """Return the task after a hand-out whose worker died."""
    held = handed(task if task.due_at_ms is None else start(task), at_ms)
    return after(held, WorkerLost(worker_id=WORKER), at_ms)


def start(task: Task) -> Task:
    """Return the task at its run_at, ready to be handed out; a ready one stays as it is."""
    if task.state is TaskState.PENDING and not task.line:
        return due(task, task.run_at_ms).task
    return task


def guarded(losses: int = 2, **changes: Any) -> Task:
    """Return a ready task with some worker losses in a row."""
    task = fresh(**changes)
    for _ in range(losses):
        task = start(lost(task))
    return task


def failed_once(**changes: Any) -> Task:
    task = running(**changes)
    return after(task, report(AttemptFailed, task, error=FAULT))


def failed_run() -> Task:
    """Return a run that begins anew after a while."""
    task = running_run()
    return after(task, report(AttemptFailed, task, error=FAULT, new_journal_id=NEXT_JOURNAL_ID))


def pausing(task: Task) -> Task:
    return after(task, PauseRequested())


def cancelled(task: Task) -> Task:
    return after(task, CancelRequested())


def succeeded(**changes: Any) -> Task:
    task = running(**changes)
    return after(task, report(AttemptSucceeded, task, output=b"done"))


def _failed() -> Task:
    task = running()
    return after(task, report(AttemptFailed, task, error=FATAL))


def _cancelled_by_worker() -> Task:
    task = cancelling()
    return after(task, report(AttemptCancelled, task))


def _expired() -> Task:
    return due(running(schedule_to_close_ms=1_000), T0 + 1_000).task


STATES: Final[dict[str, Callable[[], Task]]] = {
    "pending, ready": fresh,
    "pending, later": lambda: fresh(run_at_ms=T0 + 5_000),
    "pending, backing off": failed_once,
    "pending, lost": lambda: lost(fresh()),
    "pending, guarded": guarded,
    "pending run for its clean-up": lambda: cancelled(waiting_run()),
    "dispatched": lambda: handed(fresh()),
    "dispatched, to be paused": lambda: pausing(handed(fresh())),
    "pending run, backing off": failed_run,
    "dispatched run": lambda: handed(fresh_run()),
    "dispatched run for its clean-up": lambda: handed(cancelled(waiting_run())),
    "dispatched, guarded for the last time": lambda: handed(guarded(4)),
    "running": running,
    "running, to be paused": lambda: pausing(running()),
    "running exclusively": running_exclusively,
    "running exclusively, of a lost worker": lambda: held_exclusively(T0 + 10_000),
    "running run": running_run,
    "running run, to be paused": lambda: pausing(running_run()),
    "cancelling, not told": cancelling,
    "cancelling, grace runs": cancelling_told,
    "cancelling exclusively": lambda: cancelled(running_exclusively()),
    "cancelling, completed from elsewhere": lambda: cancelled(waiting_async()),
    "cancelling run in its clean-up": lambda: confirmed(handed(cancelled(waiting_run()))),
    "waiting run": waiting_run,
    "waiting run, sleeping": lambda: waiting_run(T0 + 5_000),
    "waiting run, patient": lambda: yielded(running_run(), patience_n=3, patience_ms=50),
    "waiting run, parked": parked_run,
    "waiting run in its clean-up": lambda: yielded(cancelled(running_run())),
    "waiting, completed from elsewhere": waiting_async,
    "waiting, completed from elsewhere, to be paused": lambda: pausing(waiting_async()),
    "paused": lambda: pausing(fresh(schedule_to_close_ms=60_000)),
    "paused run": lambda: pausing(waiting_run()),
    "paused run, parked": lambda: pausing(parked_run()),
    "paused run for its clean-up": lambda: pausing(cancelled(waiting_run())),
    "succeeded": succeeded,
    "failed": _failed,
    "failed, timed out": _expired,
    "failed, terminated": lambda: after(fresh(), Terminated()),
    "cancelled": _cancelled_by_worker,
    "cancelled, never handed out": lambda: cancelled(fresh()),
}
"""Every state in every variant that some rule tells apart."""


def yielding(task: Task, *, journal_end: int = 0, seen: int = 0, **wish: Any) -> AttemptYielded:
    return report(AttemptYielded, task, wish=Yield(seen=seen, **wish), journal_end=journal_end)


def yielded(task: Task, **wish: Any) -> Task:
    return after(task, yielding(task, **wish))
