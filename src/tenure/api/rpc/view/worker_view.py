"""Converts workers and queues between records of the core and messages of the wire."""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.core.seat.record import SeatView
from tenure.core.worker.health import Health
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import WorkerMode, WorkerStatus
from tenure.engine.read.query import WorkerView
from tenure.engine.read.queue import QueueReport
from tenure.engine.statistics.figures import Figures, percentiles_ms
from tenure.errors import InvalidArgument, wire_name
from tenure.v1 import admin_service_pb2, worker_pb2

_STATUSES: Final = {
    each: worker_pb2.WorkerStatus.Value(f"WORKER_STATUS_{each.name}") for each in WorkerStatus
}
_HEALTHS: Final = {
    each: worker_pb2.WorkerHealth.Value(f"WORKER_HEALTH_{each.name}") for each in Health
}
_MODES: Final = {
    each: worker_pb2.WorkerMode.Value(f"WORKER_MODE_{each.name}") for each in WorkerMode
}
_MODE_OF: Final[dict[int, WorkerMode]] = {number: mode for mode, number in _MODES.items()}
_MS_PER_S: Final = 1_000
_NS_PER_MS: Final = 1_000_000


def mode(number: int) -> WorkerMode:
    """Return the mode of a worker; unspecified means that it polls."""
    found = _MODE_OF.get(number) if number else WorkerMode.POLL
    if found is None:
        raise InvalidArgument("mode must be SESSION, POLL or SERVED", field="mode")
    return found


def status(text: str) -> WorkerStatus | None:
    """Return the status filter of a list; empty means all."""
    if not text:
        return None
    try:
        return WorkerStatus(text.lower())
    except ValueError:
        message = "filter_status must be ONLINE, DRAINING or OFFLINE"
        raise InvalidArgument(message, field="filterStatus") from None


def milliseconds(given: Duration | Timestamp) -> int:
    """Return a duration or an instant in milliseconds, 0 if it is not set."""
    return given.seconds * _MS_PER_S + given.nanos // _NS_PER_MS


def given_ms(message: Message, name: str, default_ms: int) -> int:
    """Return the duration in a field, more than 0, or the default if the field is not set."""
    if not message.HasField(name):
        return default_ms
    ms = milliseconds(getattr(message, name))
    if ms <= 0:
        field = wire_name(name)
        raise InvalidArgument(f"{field} must be at least a millisecond", field=field)
    return ms


def duration(ms: int) -> Duration:
    """Show a duration."""
    seconds, rest = divmod(ms, _MS_PER_S)
    return Duration(seconds=seconds, nanos=rest * _NS_PER_MS)


def instant(ms: int | None) -> Timestamp | None:
    """Show an instant, if there is one."""
    if not ms:
        return None
    seconds, rest = divmod(ms, _MS_PER_S)
    return Timestamp(seconds=seconds, nanos=rest * _NS_PER_MS)


def shown(view: WorkerView) -> worker_pb2.Worker:
    """Show a worker with its lease and health."""
    worker, lease = view.worker, view.lease
    made = worker_pb2.Worker(
        worker_id=worker.id,
        namespace_id=worker.namespace,
        task_queue=worker.queue,
        status=_STATUSES[worker.status],
        hostname=worker.hostname,
        pid=worker.pid,
        version=worker.software_version,
        workflow_types=worker.types,
        max_concurrent=worker.slots,
        registered_at=instant(worker.registered_at_ms),
        labels=worker.labels,
        mode=_MODES[worker.mode],
        name=worker.name,
        drain_deadline_at_ms=worker.drain_at_ms or 0,
        ended_at_ms=worker.ended_at_ms or 0,
        end_reason=worker.end_reason or "",
        session_no=worker.session_no,
        total_completed=view.total_completed,
        total_failed=view.total_failed,
    )
    if lease is not None:
        made.active_count = lease.active_count
        made.last_heartbeat_at.CopyFrom(instant(lease.beat_at_ms) or Timestamp())
        made.lease_until_ms = lease.lease_until_ms
        made.lease_duration_ms = lease.lease_ms
        made.lease_left_ms = lease.lease_until_ms - view.now_ms
    if view.health is not None:
        made.health = _HEALTHS[view.health]
    made.held_count = view.held.count
    made.may_stop = view.may_stop
    made.oldest_held_at_ms = view.held.oldest_at_ms or 0
    if view.seat is not None:
        made.address = view.seat.seat.address
        made.seat.CopyFrom(_seat(view.seat, lease))
    return made


def _seat(view: SeatView, lease: Lease | None) -> worker_pb2.Seat:
    seat, note = view.seat, view.note
    return worker_pb2.Seat(
        server_id=seat.server_id or "",
        taken_at_ms=seat.taken_at_ms,
        call_at_ms=note.call_at_ms,
        call_duration_ms=note.call_ms,
        call_error=note.call_error,
        failure_count=lease.failures if lease is not None else 0,
        unconfirmed_count=note.unconfirmed_count,
        kill_count=note.kill_count,
    )


def per_minute(figures: Figures) -> admin_service_pb2.PerMinute:
    """Show what happened in a minute."""
    names = admin_service_pb2.PerMinute.DESCRIPTOR.fields_by_name
    return admin_service_pb2.PerMinute(**{name: getattr(figures, name) for name in names})


def wait_ms(figures: Figures) -> admin_service_pb2.WaitMs | None:
    """Show how long tasks waited, if any were started."""
    if not any(figures.wait):
        return None
    p50, p95, p99 = percentiles_ms(figures.wait)
    return admin_service_pb2.WaitMs(p50=p50, p95=p95, p99=p99)


def queue(report: QueueReport) -> admin_service_pb2.Queue:
    """Show a queue with its settings, its counts, and what happened in the last minute."""
    view, figures, sampled = report.view, report.last_minute, report.sampled
    made = admin_service_pb2.Queue(
        name=view.queue.name,
        is_paused=view.queue.is_paused,
        concurrency_max=view.queue.concurrency_max,
        types=[
            admin_service_pb2.TypeCount(
                type=type_, counts={state.upper(): count for state, count in counts.items()}
            )
            for type_, counts in sorted(view.counts.items())
        ],
        is_count_exact=report.is_exact,
        is_type_count_exact=view.is_exact,
        counts={state.upper(): count for state, count in report.depths.items()},
        per_minute=per_minute(figures),
        wait_ms=wait_ms(figures),
    )
    if sampled is not None:
        made.sample_at_ms = sampled.at_ms
        made.oldest_waiting_ms = sampled.oldest_waiting_ms
        made.worker_count = sampled.crew.count
        made.slots = sampled.crew.slots
        made.held = sampled.held_count
    return made
