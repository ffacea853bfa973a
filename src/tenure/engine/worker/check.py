"""Checks of worker commands: invalid input gets its typed error before anything is accepted."""

from __future__ import annotations

from typing import Final

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.seat.place import read_place
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.check import COUNT_MAX, check_namespace, check_refs
from tenure.engine.worker import command as c
from tenure.errors import InvalidArgument

_SMALL_COUNT: Final = 2**30


def register_worker(command: c.RegisterWorker) -> None:
    """Check all fields of a registration."""
    check_namespace(command.namespace)
    new: NewWorker = command.new
    checks.name(new.instance_key, "instanceKey")
    checks.name(new.queue, "queue")
    if not new.types:
        message = "types must not be empty"
        raise InvalidArgument(message, field="types")
    checks.integer(len(new.types), "types", 1, limits.TYPES_PER_WORKER_MAX)
    for each in new.types:
        checks.name(each, "types")
    checks.integer(new.slots, "maxConcurrent", 1, limits.WORKER_SLOTS_MAX)
    if new.name:
        checks.worker_name(new.name, "name")
    checks.text(new.hostname, "hostname", bytes_max=limits.TEXT_BYTES_MAX)
    checks.integer(new.pid, "pid", 0, 2**31 - 1)
    checks.text(new.software_version, "version", bytes_max=limits.TEXT_BYTES_MAX)
    checks.labels(new.labels)
    if new.lease_ms:
        checks.duration_ms(new.lease_ms, "leaseDurationMs")
    if new.mode is WorkerMode.CALLBACK:
        message = "mode must not be CALLBACK, which is for endpoints: an operator creates them"
        raise InvalidArgument(message, field="mode")
    if new.mode is WorkerMode.SERVED:
        read_place(new.address)
    elif new.address:
        message = "address must be empty unless the mode is SERVED"
        raise InvalidArgument(message, field="address")


def drain_worker(command: c.DrainWorker) -> None:
    """Check one worker, and its deadline."""
    known_worker(command)
    checks.duration_ms(command.deadline_ms, "deadlineMs")


def known_worker(
    command: c.DrainWorker | c.DeregisterWorker | c.EvictWorker | c.FailCall | c.CloseSession,
) -> None:
    """Check one worker by its id."""
    check_namespace(command.namespace)
    checks.worker_id(command.worker_id)


def open_session(command: c.OpenSession) -> None:
    """Check the worker, its attempts, and its window."""
    check_refs(command.namespace, command.worker_id, command.held)
    checks.integer(command.window, "window", 0, limits.WORKER_SLOTS_MAX)
    # Room for those that are counted on from the last one.
    checks.integer(command.session_no, "sessionNo", 0, 2**30)


def report_held(command: c.ReportHeld) -> None:
    """Check the worker, and all attempts that it names."""
    for refs in (command.bound, command.unbound, command.held or ()):
        check_refs(command.namespace, command.worker_id, refs)


def heartbeat(command: c.Heartbeat) -> None:
    """Check the worker and its heartbeat; most are valid by one comparison."""
    check_namespace(command.namespace)
    checks.worker_id(command.worker_id)
    beat = command.beat
    if type(beat.token) is not int or not 0 <= beat.token <= _SMALL_COUNT:
        checks.integer(beat.token, "token", 0, COUNT_MAX)
    if beat.lease_ms:
        checks.duration_ms(beat.lease_ms, "leaseDurationMs")
    for total in (beat.total_completed, beat.total_failed):
        if type(total) is not int or not -1 <= total <= _SMALL_COUNT:
            _counters(beat)
    for count in (
        beat.completed_delta,
        beat.failed_delta,
        beat.active_count,
        beat.loop_lag_ms,
        beat.stuck_count,
    ):
        if type(count) is not int or not 0 <= count <= _SMALL_COUNT:
            _counters(beat)


def _counters(beat: Beat) -> None:
    """Name the first invalid counter; most are small, and never come here."""
    checks.integer(beat.total_completed, "totalCompleted", -1, COUNT_MAX)
    checks.integer(beat.total_failed, "totalFailed", -1, COUNT_MAX)
    checks.integer(beat.completed_delta, "completedDelta", 0, 2**31 - 1)
    checks.integer(beat.failed_delta, "failedDelta", 0, 2**31 - 1)
    checks.integer(beat.active_count, "activeCount", 0, 2**31 - 1)
    checks.integer(beat.loop_lag_ms, "loopLagMs", 0, 2**31 - 1)
    checks.integer(beat.stuck_count, "stuckCount", 0, 2**31 - 1)
