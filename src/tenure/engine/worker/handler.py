"""Worker commands: registration, sessions, held sets, drain and the end of a worker."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenure.core.access.audit import AuditAction
from tenure.core.seat.record import Seat
from tenure.core.task import crash_guard
from tenure.core.task import event as task_event
from tenure.core.task.crash_guard import ControlGroup
from tenure.core.task.effect import Stop, StopCause, TellStop
from tenure.core.task.event import DeliveryMissed, TaskLost
from tenure.core.task.record import TaskState
from tenure.core.task.refusal import is_held
from tenure.core.task.stop import cause_of
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import lease as lease_rules
from tenure.core.worker import reconcile as reconcile_rules
from tenure.core.worker import record as worker_record
from tenure.core.worker.change import ChangeKind
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import EndReason, NewWorker, Worker, WorkerMode, WorkerStatus
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import TaskRef, WorkDone
from tenure.engine.task.handler import not_found
from tenure.engine.worker import command as c
from tenure.engine.worker.change_log import note_change
from tenure.engine.worker.judgement import reason_to_end
from tenure.errors import AlreadyExists, Rejection, WrongState
from tenure.store.table.task import TaskKey


def register_worker(ws: WorkingSet, command: c.RegisterWorker) -> c.Registration:
    """Register an incarnation; an earlier one of the same name is superseded."""
    settings = ws.settings
    if not ws.namespaces.exists(command.namespace):
        raise not_found("Namespace", command.namespace)
    ws.check_enabled(command.namespace)
    new = command.new
    known = [each for each in ws.workers.values() if each.namespace == command.namespace]
    for worker in known:
        if worker.instance_key == new.instance_key:
            return _registered_again(ws, worker, new)
    for worker in known:
        if new.name and worker.name == new.name and worker.status is not WorkerStatus.OFFLINE:
            _check_name(worker, command)
            _end(ws, worker.id, EndReason.SUPERSEDED)
    lease_ms = lease_rules.granted_lease_ms(
        new.lease_ms,
        default_ms=_DEFAULT_LEASES[new.mode](settings),
        least_ms=settings.lease_least_ms,
        most_ms=settings.lease_most_ms,
    )
    worker = worker_record.create(
        new, worker_id=ws.clock.new_id(), namespace=command.namespace, now_ms=ws.now_ms
    )
    lease = Lease(
        worker_id=worker.id,
        namespace=command.namespace,
        server_id=ws.server_id,
        lease_until_ms=ws.now_ms + lease_ms,
        lease_ms=lease_ms,
        beat_at_ms=ws.now_ms,
    )
    ws.workers.add(worker)
    ws.leases.add(lease)
    if new.mode is WorkerMode.SERVED:
        ws.rows.seats.add(Seat(worker.id, worker.namespace, new.mode, new.address, new.caller))
    note_change(ws, worker, ChangeKind.REGISTERED)
    return _registration(ws, worker, lease)


def _registration(ws: WorkingSet, worker: Worker, lease: Lease) -> c.Registration:
    """Return the answer to a registration. A served worker is called each tick."""
    interval_ms = lease_rules.interval_ms(lease.lease_ms)
    if worker.mode is WorkerMode.SERVED:
        interval_ms = min(interval_ms, ws.settings.served_tick_ms)
    return c.Registration(worker, lease, interval_ms)


_DEFAULT_LEASES = {
    WorkerMode.SESSION: lambda settings: settings.session_lease_ms,
    WorkerMode.POLL: lambda settings: settings.poll_lease_ms,
    WorkerMode.SERVED: lambda settings: settings.served_lease_ms,
}


def _check_name(worker: Worker, command: c.RegisterWorker) -> None:
    """Refuse to supersede a worker of another key: that would end it like a deregistration."""
    if worker_rules.speaker_refusal(worker, command.speaker) is not None:
        message = (
            f"A live worker with another API key has the name {worker.name!r}. "
            "Choose another name, or wait until that worker is offline."
        )
        raise AlreadyExists(message)


def _registered_again(ws: WorkingSet, worker: Worker, new: NewWorker) -> c.Registration:
    """Answer as the first time. The instance key proves the worker, with any API key."""
    lease = ws.leases.get(worker.id)
    if lease is None:
        raise worker_rules.inactive(worker.id, worker.end_reason).to_error()
    seat = ws.rows.seats.get(worker.id)
    address = "" if seat is None else seat.address
    differing = ", ".join(worker_record.differences(worker, new, address=address))
    if differing:
        message = (
            f"The instance key was used to register worker {worker.id} with other content. "
            f"What differs: {differing}. Make a new random instance key for each worker."
        )
        raise AlreadyExists(message, field=differing)
    if worker.key_id != new.key_id:
        decision = ws.apply_worker(worker.id, worker_rules.KeyChanged(new.key_id))
        assert not isinstance(decision, Rejection)
        worker = decision.worker
    return _registration(ws, worker, lease)


def _end(ws: WorkingSet, worker_id: str, reason: EndReason, audit_id: str = "") -> Rejection | None:
    decision = ws.apply_worker(worker_id, worker_rules.WorkerEnded(reason))
    if isinstance(decision, Rejection):
        return decision
    ws.rows.seats.close(ws.workers[worker_id])
    # Only a worker that reports itself as done has certainly stopped.
    ws.drop_lease(worker_id, is_kept=reason is not EndReason.DEREGISTERED)
    note_change(ws, decision.worker, ChangeKind.OFFLINE, reason, audit_id)
    return None


def _administered(ws: WorkingSet, namespace: str, worker_id: str) -> Worker:
    worker = ws.workers.get(worker_id)
    if worker is None or worker.namespace != namespace:
        raise not_found("Worker", worker_id)
    return worker


def calling(ws: WorkingSet, namespace: str, worker_id: str, speaker: str | None = None) -> Worker:
    """Return the calling worker, or refuse one that is not active in this namespace."""
    worker = ws.workers.get(worker_id)
    refusal = worker_rules.report_refusal(worker, namespace=namespace, worker_id=worker_id)
    if refusal is not None:
        raise refusal.to_error()
    assert worker is not None
    _check_speaker(worker, speaker)
    return worker


def _check_speaker(worker: Worker, speaker: str | None) -> None:
    refusal = worker_rules.speaker_refusal(worker, speaker)
    if refusal is not None:
        raise refusal.to_error()


def drain_worker(ws: WorkingSet, command: c.DrainWorker) -> Worker:
    """Let a worker finish what it holds; the answer means that no later hand-out happens."""
    worker_id = command.worker_id
    if command.is_own:
        worker = calling(ws, command.namespace, worker_id)
    else:
        worker = _administered(ws, command.namespace, worker_id)
    _check_speaker(worker, command.speaker)
    event = worker_rules.DrainRequested(command.deadline_ms)
    decision = ws.apply_worker(worker.id, event)
    if isinstance(decision, Rejection):
        raise decision.to_error()
    if decision.worker is not worker:
        audit_id = ""
        if not command.is_own:
            detail = f"within {command.deadline_ms} ms"
            audit_id = _record(ws, AuditAction.WORKER_DRAIN, command, worker.id, detail)
        cause = "worker" if command.is_own else "operator"
        note_change(ws, decision.worker, ChangeKind.DRAINING, cause, audit_id)
    return decision.worker


def _record(
    ws: WorkingSet,
    action: AuditAction,
    command: c.DrainWorker | c.EvictWorker,
    target: str,
    detail: str = "",
) -> str:
    return ws.record(action, command.actor, target, namespaces=(command.namespace,), detail=detail)


def evict_worker(ws: WorkingSet, command: c.EvictWorker) -> Worker:
    """Take a worker offline, whatever it does; a repeated call is allowed."""
    worker = _administered(ws, command.namespace, command.worker_id)
    if worker.end_reason is EndReason.EVICTED:
        return worker
    if worker.status is WorkerStatus.OFFLINE:
        message = f"Worker {worker.id} is already offline."
        raise WrongState(message, state=worker.status.upper())
    audit_id = _record(ws, AuditAction.WORKER_EVICT, command, worker.id)
    _end(ws, worker.id, EndReason.EVICTED, audit_id)
    return ws.workers[worker.id]


def deregister_worker(ws: WorkingSet, command: c.DeregisterWorker) -> Worker:
    """Deregister a worker; a repeated call is allowed."""
    worker = ws.workers.get(command.worker_id)
    is_ours = worker is not None and worker.namespace == command.namespace
    if worker is not None and is_ours and worker.end_reason is EndReason.DEREGISTERED:
        _check_speaker(worker, command.speaker)
        return worker
    worker = calling(ws, command.namespace, command.worker_id, command.speaker)
    _end(ws, worker.id, EndReason.DEREGISTERED)
    return ws.workers[worker.id]


def open_session(ws: WorkingSet, command: c.OpenSession) -> c.SessionAnswer:
    """Start a new session of a worker from the full set of what it holds."""
    worker = calling(ws, command.namespace, command.worker_id, command.speaker)
    served = worker_rules.served_refusal(worker)
    if served is not None:
        raise served.to_error()
    if not ws.tasks.held.get(worker.id):
        # A worker that holds tasks may come back to finish them; it gets nothing else.
        ws.check_enabled(command.namespace)
    decision = ws.apply_worker(worker.id, worker_rules.SessionOpened(command.session_no))
    if isinstance(decision, Rejection):
        raise decision.to_error()
    lease = ws.resume(worker.id)
    note_change(ws, worker, ChangeKind.CONNECTED, f"session {decision.worker.session_no}")
    report = HeldReport(
        held=command.held, heard_at_ms=lease.beat_at_ms, session_no=decision.worker.session_no
    )
    stop = reconcile(ws, decision.worker, report)
    held = [ws.tasks[key] for key in ws.tasks.held.get(worker.id, [])]
    mine = [task for task in held if task.worker_id == worker.id and task.is_attempt_live]
    cancel = [task for task in mine if task.state is TaskState.CANCELLING]
    return c.SessionAnswer(
        decision.worker,
        lease,
        stop,
        tuple(TaskRef(task.id, task.attempt) for task in cancel),
        frozenset(TaskRef(task.id, task.attempt) for task in mine),
    )


def close_session(ws: WorkingSet, command: c.CloseSession) -> WorkDone:
    """Suspect a worker that closed its current session."""
    worker = ws.workers.get(command.worker_id)
    is_current = worker is not None and worker.session_no == command.session_no
    lease = ws.leases.get(command.worker_id)
    if worker is None or not is_current or lease is None or _is_heard_since(ws, lease, command):
        return WorkDone(0)
    if lease.suspect_until_ms is None:
        note_change(ws, worker, ChangeKind.DISCONNECTED, "the worker closed its session")
    ws.suspect(command.worker_id, lease_rules.SessionLost(ws.settings.suspect_grace_ms))
    return WorkDone(1)


def _is_heard_since(ws: WorkingSet, lease: Lease, command: c.CloseSession) -> bool:
    """Return whether a heartbeat was accepted after the loss, which had to wait for its batch."""
    if command.token is not None:
        return lease.token > command.token
    if command.lost_at_mono_ms is None:
        return False
    return lease.beat_at_ms > ws.now_ms - (ws.clock.monotonic_ms() - command.lost_at_mono_ms)


def spare_workers(ws: WorkingSet, command: c.SpareWorkers) -> WorkDone:
    """End the suspicion of workers that lost their sessions together with many others."""
    spared = sorted(command.worker_ids & ws.leases.keys())
    for worker_id in spared:
        ws.resume(worker_id)
    return WorkDone(len(spared))


def fail_call(ws: WorkingSet, command: c.FailCall) -> WorkDone:
    """Count a failed call to a served worker, unless another server drives it by now."""
    worker = calling(ws, command.namespace, command.worker_id)
    if command.session_no not in {0, worker.session_no}:
        return WorkDone(0)
    ws.leases.failed.append(worker.id)
    return WorkDone(1)


def report_held(ws: WorkingSet, command: c.ReportHeld) -> c.HeldAnswer:
    """Apply deltas or a full held set; both are idempotent."""
    stop: tuple[Stop, ...] = bind(ws, command, command.bound)
    for ref in command.unbound:
        lose(ws, command.namespace, command.worker_id, ref)
    if command.held is not None:
        worker = ws.workers.get(command.worker_id)
        if worker is not None and worker.namespace == command.namespace:
            report = HeldReport(held=command.held, heard_at_ms=command.previous_beat_at_ms)
            stop += reconcile(ws, worker, report)
    return c.HeldAnswer(stop)


def bind(ws: WorkingSet, command: c.ReportHeld, refs: Iterable[TaskRef]) -> tuple[Stop, ...]:
    """Confirm attempts; return those that are not this worker's any more."""
    stop = []
    for ref in refs:
        key = (command.namespace, ref.task_id)
        event = task_event.Confirmed(attempt=ref.attempt, worker_id=command.worker_id)
        if key not in ws.tasks or isinstance(ws.apply(key, event), Rejection):
            stop.append(_stop(ws, command.namespace, command.worker_id, ref))
    return tuple(stop)


def _stop(ws: WorkingSet, namespace: str, worker_id: str, ref: TaskRef) -> Stop:
    """Return why a worker has to stop an attempt; a stop that is not sent yet has the reason."""
    told = ws.stops.get((worker_id, ref.task_id, ref.attempt))
    if told is not None:
        return told.stop
    task = ws.tasks.get((namespace, ref.task_id))
    cause = StopCause.LOST_LEASE if task is None else cause_of(task, ref.attempt)
    return Stop(ref.task_id, ref.attempt, cause)


def lose(ws: WorkingSet, namespace: str, worker_id: str, ref: TaskRef) -> None:
    """Note that a worker no longer has an attempt; an ended one changes nothing."""
    key = (namespace, ref.task_id)
    if key in ws.tasks:
        ws.apply(key, task_event.TaskLost(attempt=ref.attempt, worker_id=worker_id))


class HeldReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A full held set; ``heard_at_ms`` is what came before it, ``session_no`` what it opens.

    If it is the answer to a call, that call ``carried`` attempts, and those ``done`` have ended.
    """

    held: tuple[TaskRef, ...]
    heard_at_ms: int
    session_no: int | None = None
    carried: frozenset[TaskRef] = frozenset()
    done: tuple[TaskRef, ...] = ()


def reconcile(ws: WorkingSet, worker: Worker, report: HeldReport) -> tuple[Stop, ...]:
    """Compare a worker's report with what it holds; return what it has to stop."""
    reported, session_no = report.held, report.session_no
    said = {*reported, *report.done}
    heard_at_ms = reconcile_rules.counted_from_ms(report.heard_at_ms, now_ms=ws.now_ms)
    for key in ws.tasks.held.get(worker.id, []):
        task = ws.tasks[key]
        ref = TaskRef(task.id, task.attempt)
        if ref in said or not is_held(task, ref.attempt, worker.id):
            continue
        event: DeliveryMissed | TaskLost | None
        if ref in report.carried:
            event = reconcile_rules.uncarried(task)
        else:
            event = reconcile_rules.missing(task, heard_at_ms=heard_at_ms, session_no=session_no)
        if event is not None:
            ws.apply(key, event)
    stop = []
    for ref in reported:
        key = (worker.namespace, ref.task_id)
        if not _is_bound(ws, key, ref, worker.id):
            stop.append(_stop(ws, worker.namespace, worker.id, ref))
    # An attempt that it does not report does not run.
    ws.stops.forget(worker.id)
    return tuple(stop)


def stops_told(ws: WorkingSet, command: c.StopsTold) -> WorkDone:
    """Remove the stops that were sent to a session, if it is still the worker's current one."""
    worker = ws.workers.get(command.worker_id)
    if worker is None or worker.session_no != command.session_no:
        return WorkDone(0)
    for stop in command.items:
        told = TellStop(command.worker_id, stop)
        ws.stops.removed[command.worker_id, stop.task_id, stop.attempt] = told
    return WorkDone(len(command.items))


def _is_bound(ws: WorkingSet, key: TaskKey, ref: TaskRef, worker_id: str) -> bool:
    task = ws.tasks.get(key)
    if task is None or not is_held(task, ref.attempt, worker_id):
        return False
    if task.state is TaskState.DISPATCHED:
        ws.apply(key, task_event.Confirmed(attempt=ref.attempt, worker_id=worker_id))
    return True


def judge_leases(ws: WorkingSet, command: c.JudgeLeases) -> WorkDone:
    """Take the workers offline whose leases have ended."""
    count = 0
    for worker_id, lapsed in ws.leases.lapsed.items():
        reason = reason_to_end(command, ws.leases, lapsed, ws.workers[worker_id])
        if reason is not None and worker_id in ws.leases:
            _end(ws, worker_id, reason)
            count += 1
    return WorkDone(count, has_more=count >= command.amount)


def release_held(ws: WorkingSet, command: c.ReleaseHeldTasks) -> WorkDone:
    """End a bounded number of attempts of an offline worker, each exactly once.

    Exclusive ones stay with it until its lease would have ended; their own timers end them.
    """
    worker = ws.workers.get(command.worker_id)
    if worker is None or not worker.release_pending:
        return WorkDone(0)
    lease_until_ms, lease_ms = ws.leases.ended.get(worker.id, (0, 0))
    if worker.end_reason is EndReason.DEREGISTERED:
        lease_until_ms = lease_ms = 0
    held = ws.tasks.held.get(worker.id, [])
    assert worker.ended_at_ms is not None
    loss = crash_guard.loss_of(
        [ws.tasks[key] for key in held],
        at_ms=worker.ended_at_ms,
        control=ws.tasks.control.get(worker.id, ControlGroup()),
    )
    lost = task_event.WorkerLost(
        worker_id=worker.id, lease_until_ms=lease_until_ms, lease_ms=lease_ms, loss=loss
    )
    for key in held:
        ws.apply(key, lost)
        if crash_guard.explains_death(ws.tasks[key].progress):
            ws.workers.explained_ends.add(worker.id)
    kept_count = sum(ws.tasks[key].progress.release_at_ms > 0 for key in held)
    has_more = len(held) >= command.amount
    if not has_more:
        ws.apply_worker(worker.id, worker_rules.HeldReleased())
        ws.leases.forgotten.add(worker.id)
        ws.stops.forget(worker.id)
    return WorkDone(len(held) - kept_count, has_more=has_more, kept_count=kept_count)
