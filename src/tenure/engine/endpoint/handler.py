"""The commands for endpoints: each change raises the session of the worker row.

So after the answer to a change nothing is handed out by the old values: the server that drives the
endpoint has to take its seat again.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.access.audit import AuditAction
from tenure.core.endpoint import check, hold
from tenure.core.endpoint.record import LABEL, Endpoint, EndpointSecret, EndpointSpec, Pause
from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.core.limits import ENDPOINT_SECRET_BYTES, ENDPOINT_SECRET_OVERLAP_MS
from tenure.core.seat.record import Seat
from tenure.core.task import event as task_event
from tenure.core.task.event import TaskEvent
from tenure.core.task.record import Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import record as worker_record
from tenure.core.worker.record import EndReason, NewWorker, Worker, WorkerMode, WorkerStatus
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import TaskRef
from tenure.engine.endpoint import command as c
from tenure.engine.task.handler import not_found
from tenure.engine.worker.handler import calling
from tenure.errors import AlreadyExists, NotFound, Rejection, WrongState


def create_endpoint(ws: WorkingSet, command: c.CreateEndpoint) -> c.EndpointMade:
    """Create an endpoint, its worker row and its free seat."""
    namespace = command.namespace
    if not ws.namespaces.exists(namespace):
        raise not_found("Namespace", namespace)
    ws.check_enabled(namespace)
    is_new_here = any(
        (each.namespace, each.name) == (namespace, command.name)
        for each in ws.rows.endpoints.new.values()
    )
    if (namespace, command.name) in ws.rows.endpoints.named or is_new_here:
        message = f"Endpoint {command.name} already exists. Choose another name."
        raise AlreadyExists(message)
    worker_id, secret = ws.clock.new_id(), ws.clock.random_bytes(ENDPOINT_SECRET_BYTES)
    new = NewWorker(
        instance_key=worker_id,
        queue=command.queue,
        types=command.spec.types,
        mode=WorkerMode.CALLBACK,
        slots=command.spec.concurrency,
        labels={LABEL: command.name},
    )
    worker = worker_record.create(new, worker_id=worker_id, namespace=namespace, now_ms=ws.now_ms)
    endpoint = Endpoint(
        id=worker_id,
        namespace=namespace,
        name=command.name,
        queue=command.queue,
        spec=command.spec,
        secrets=(EndpointSecret(secret),),
        created_at_ms=ws.now_ms,
    )
    ws.workers.add(worker)
    ws.rows.seats.add(Seat(worker_id, namespace, WorkerMode.CALLBACK, "", ""))
    ws.rows.endpoints.add(endpoint)
    _record(ws, AuditAction.ENDPOINT_CREATE, command.actor, endpoint)
    return c.EndpointMade(endpoint, secret)


def set_endpoint(ws: WorkingSet, command: c.SetEndpoint) -> Endpoint:
    """Change what an operator says about an endpoint."""
    endpoint = _changing(ws, command)
    spec = _changed(endpoint.spec, command.change)
    check.check_spec(spec)
    changed = replace(endpoint, spec=spec)
    if spec != endpoint.spec:
        ws.rows.endpoints.reshaped.add(endpoint.id)
    return _save(ws, AuditAction.ENDPOINT_SET, command.actor, changed)


def _changed(spec: EndpointSpec, change: c.EndpointChange) -> EndpointSpec:
    given = {
        name: value
        for name in ("url", "types", "headers", "concurrency", "timeout_ms")
        if (value := getattr(change, name)) is not None
    }
    names = ("heartbeat_interval_ms", "heartbeat_timeout_ms", "delivery_timeout_ms", "token_ms")
    wanted = {name: getattr(change, name) for name in names}
    times = check.times(
        **{
            name: getattr(spec.times, name) if value is None else value
            for name, value in wanted.items()
        }
    )
    return replace(spec, times=times, **given)


def pause_endpoint(ws: WorkingSet, command: c.PauseEndpoint) -> Endpoint:
    """Pause or resume an endpoint; a resumed one is tried at once."""
    endpoint = _changing(ws, command)
    if command.is_paused:
        changed = replace(endpoint, pause=endpoint.pause or Pause.OPERATOR)
        return _save(ws, AuditAction.ENDPOINT_PAUSE, command.actor, changed)
    changed = replace(endpoint, pause=None, failure_count=0, held_until_ms=0)
    return _save(ws, AuditAction.ENDPOINT_RESUME, command.actor, changed)


def rotate_endpoint_secret(ws: WorkingSet, command: c.RotateEndpointSecret) -> c.EndpointMade:
    """Make a new secret; the one before signs for a day too."""
    endpoint = _changing(ws, command)
    secret = ws.clock.random_bytes(ENDPOINT_SECRET_BYTES)
    until_ms = ws.now_ms + ENDPOINT_SECRET_OVERLAP_MS
    # Never more than two: whoever rotates twice wants the first one to end.
    secrets = (EndpointSecret(secret), EndpointSecret(endpoint.secrets[0].value, until_ms))
    changed = replace(endpoint, secrets=secrets)
    saved = _save(ws, AuditAction.ENDPOINT_ROTATE_SECRET, command.actor, changed)
    return c.EndpointMade(saved, secret)


def delete_endpoint(ws: WorkingSet, command: c.DeleteEndpoint) -> Endpoint:
    """Drain an endpoint; it is gone when nothing is held by it."""
    endpoint = _changing(ws, command, is_deleting_allowed=True)
    if endpoint.is_deleting:
        return endpoint
    if ws.workers[endpoint.id].status is not WorkerStatus.OFFLINE:
        ws.apply_worker(endpoint.id, worker_rules.DrainRequested())
    changed = replace(endpoint, is_deleting=True)
    return _save(ws, AuditAction.ENDPOINT_DELETE, command.actor, changed)


def end_endpoint(ws: WorkingSet, command: c.EndEndpoint) -> bool:
    """Delete an endpoint that holds nothing any more, and end its worker row."""
    worker = ws.workers.get(command.endpoint_id)
    endpoint = ws.rows.endpoints.get(command.endpoint_id)
    if worker is None or endpoint is None or ws.tasks.held.get(worker.id):
        return False
    is_offline = worker.status is WorkerStatus.OFFLINE
    if not endpoint.is_deleting and not is_offline:
        return False
    if not is_offline:
        ws.apply_worker(worker.id, worker_rules.WorkerEnded(EndReason.DEREGISTERED))
        ws.rows.seats.close(ws.workers[worker.id])
    ws.rows.endpoints.removed[endpoint.id] = endpoint
    return True


def _changing(
    ws: WorkingSet,
    command: c.SetEndpoint | c.PauseEndpoint | c.RotateEndpointSecret | c.DeleteEndpoint,
    *,
    is_deleting_allowed: bool = False,
) -> Endpoint:
    endpoint = ws.rows.endpoints.get(command.endpoint_id)
    if endpoint is None or endpoint.namespace != command.namespace:
        raise NotFound("The endpoint was not found.")
    if endpoint.is_deleting and not is_deleting_allowed:
        message = f"Endpoint {endpoint.name} is being deleted."
        raise WrongState(message, state="DELETING")
    return endpoint


def _save(ws: WorkingSet, action: AuditAction, actor: str, endpoint: Endpoint) -> Endpoint:
    """Store a change, and end every offer that stands on the old values; the same again is none."""
    if ws.rows.endpoints[endpoint.id] == endpoint:
        return endpoint
    ws.rows.endpoints.put(endpoint)
    decision = ws.apply_worker(endpoint.id, worker_rules.SessionOpened())
    seat = ws.rows.seats.get(endpoint.id)
    if not isinstance(decision, Rejection) and seat is not None:
        ws.rows.seats.put(replace(seat, session_no=decision.worker.session_no))
    _record(ws, action, actor, endpoint)
    return endpoint


def _record(ws: WorkingSet, action: AuditAction, actor: str, endpoint: Endpoint) -> None:
    namespaces = (endpoint.namespace,)
    ws.record(action, actor, endpoint.name, namespaces=namespaces, detail=endpoint.queue)


# -- Driving


def take_endpoint(ws: WorkingSet, command: c.TakeEndpoint) -> c.EndpointTaken:
    """Take a seat: the raised session number is the fence against its former owner."""
    worker = calling(ws, command.namespace, command.worker_id)
    seat = ws.rows.seats.get(worker.id)
    endpoint = ws.rows.endpoints.get(worker.id)
    if endpoint is None or seat is None or not _is_free(ws, seat):
        message = f"The seat of worker {worker.id} is not free."
        raise WrongState(message, state="TAKEN")
    decision = ws.apply_worker(worker.id, worker_rules.SessionOpened())
    assert not isinstance(decision, Rejection)
    session_no = decision.worker.session_no
    seat = replace(seat, server_id=ws.server_id, session_no=session_no, taken_at_ms=ws.now_ms)
    ws.rows.seats.put(seat)
    for task in _held(ws, worker):
        if is_undelivered(task) and TaskRef(task.id, task.attempt) not in command.posting:
            missed = task_event.DeliveryMissed(attempt=task.attempt, worker_id=worker.id)
            ws.apply((task.namespace, task.id), missed)
    held = frozenset(TaskRef(task.id, task.attempt) for task in _held(ws, worker))
    # What an earlier command of this batch has changed about the worker row counts too.
    shown = replace(decision.worker, types=endpoint.spec.types, slots=endpoint.spec.concurrency)
    return c.EndpointTaken(seat=seat, worker=shown, endpoint=endpoint, held=held, now_ms=ws.now_ms)


def _is_free(ws: WorkingSet, seat: Seat) -> bool:
    stale_ms = ws.settings.seat_stale_ms
    return seat.is_free_for(ws.server_id, now_ms=ws.now_ms, stale_ms=stale_ms)


def _held(ws: WorkingSet, worker: Worker) -> list[Task]:
    tasks = [ws.tasks[key] for key in ws.tasks.held.get(worker.id, [])]
    return [task for task in tasks if task.worker_id == worker.id and task.is_attempt_live]


def is_undelivered(task: Task) -> bool:
    """Return whether no endpoint has accepted an attempt yet, and no process has reported."""
    callback = task.progress.callback
    is_accepted = callback is not None and callback.accepted_at_ms > 0
    return task.state is TaskState.DISPATCHED and not is_accepted


def report_delivery(ws: WorkingSet, command: c.ReportDelivery) -> c.Delivered:
    """Apply the result of a POST; after a process has reported it means nothing for the task."""
    key = (command.namespace, command.item.task_id)
    endpoint = ws.rows.endpoints.get(command.worker_id) if command.counts else None
    if key in ws.tasks:
        event = _event(command.item, command.worker_id, command.delivery)
        if isinstance(ws.apply(key, event), Rejection) and not _is_about_endpoint(command.delivery):
            return c.Delivered(endpoint, ws.now_ms)
    if endpoint is None:
        return c.Delivered(None, ws.now_ms)
    after = hold.after(endpoint, command.delivery, ws.now_ms)
    if after is not endpoint:
        ws.rows.endpoints.put(after)
    return c.Delivered(after, ws.now_ms)


def _is_about_endpoint(delivery: Delivery) -> bool:
    """Return whether an answer says something of the endpoint, whatever became of the attempt."""
    return delivery.verdict in {Verdict.BUSY, Verdict.GONE}


def _event(item: TaskRef, worker_id: str, delivery: Delivery) -> TaskEvent:
    match delivery.verdict:
        case Verdict.ACCEPTED:
            return task_event.DeliveryAccepted(attempt=item.attempt, worker_id=worker_id)
        case Verdict.REFUSED:
            error = ErrorInfo(
                ErrorCategory.CONFIGURATION, delivery.error, type="EndpointRefused", retryable=False
            )
            return task_event.DeliveryRefused(
                attempt=item.attempt, worker_id=worker_id, error=error
            )
        case Verdict.BUSY | Verdict.GONE | Verdict.FAILED:
            return task_event.DeliveryMissed(attempt=item.attempt, worker_id=worker_id)
