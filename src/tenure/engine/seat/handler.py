"""The commands for seats: who drives a worker, and the full set of an answer."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.task.record import TaskState
from tenure.core.task.refusal import is_held
from tenure.core.worker import decide as worker_rules
from tenure.core.worker.record import Worker
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import TaskRef
from tenure.engine.seat import command as c
from tenure.engine.worker.handler import HeldReport, calling, reconcile
from tenure.errors import Rejection, WrongState


def take_seat(ws: WorkingSet, command: c.TakeSeat) -> c.SeatTaken:
    """Take a seat: the raised session number is the fence against its former owner."""
    worker = calling(ws, command.namespace, command.worker_id)
    seat = ws.rows.seats.get(worker.id)
    if seat is None or not seat.is_free_for(
        ws.server_id, now_ms=ws.now_ms, stale_ms=ws.settings.seat_stale_ms
    ):
        message = f"The seat of worker {worker.id} is not free."
        raise WrongState(message, state="TAKEN")
    decision = ws.apply_worker(worker.id, worker_rules.SessionOpened())
    assert not isinstance(decision, Rejection)
    session_no = decision.worker.session_no
    seat = replace(seat, server_id=ws.server_id, session_no=session_no, taken_at_ms=ws.now_ms)
    ws.rows.seats.put(seat)
    tasks = [ws.tasks[key] for key in ws.tasks.held.get(worker.id, [])]
    mine = [task for task in tasks if task.worker_id == worker.id and task.is_attempt_live]
    refs: dict[TaskState, list[TaskRef]] = {state: [] for state in TaskState}
    for task in mine:
        refs[task.state].append(TaskRef(task.id, task.attempt))
    return c.SeatTaken(
        seat=seat,
        worker=decision.worker,
        lease=ws.resume(worker.id),
        held=frozenset(TaskRef(task.id, task.attempt) for task in mine),
        unconfirmed=tuple(refs[TaskState.DISPATCHED]),
        cancel=tuple(refs[TaskState.CANCELLING]),
        taken_at_ms=ws.now_ms,
    )


def apply_set(ws: WorkingSet, command: c.ApplySet) -> c.SetAnswer:
    """Compare what a served worker has with its rows; in the order of calls, none comes twice."""
    worker = calling(ws, command.namespace, command.worker_id)
    if worker.session_no != command.session_no:
        message = f"Another server drives worker {worker.id} by now."
        raise WrongState(message, state="TAKEN")
    report = HeldReport(
        held=command.running,
        heard_at_ms=command.applied_at_ms,
        carried=frozenset(command.carried),
        done=command.done,
    )
    stop = reconcile(ws, worker, report)
    return c.SetAnswer(
        applied_at_ms=ws.now_ms,
        stop=stop,
        cancel=tuple(ref for ref in command.running if _is_cancelling(ws, worker, ref)),
    )


def _is_cancelling(ws: WorkingSet, worker: Worker, ref: TaskRef) -> bool:
    task = ws.tasks.get((worker.namespace, ref.task_id))
    if task is None or task.state is not TaskState.CANCELLING:
        return False
    return is_held(task, ref.attempt, worker.id)
