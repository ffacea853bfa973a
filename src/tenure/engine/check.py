"""Checks of commands before they are accepted: bad input gets its typed error, nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.access import api_key
from tenure.core.task import enqueue
from tenure.core.task.retry import ErrorInfo
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import NewWorker
from tenure.engine.access.command import (
    CreateKey,
    CreateNamespace,
    RevokeKey,
    SetNamespace,
    SetQueue,
)
from tenure.engine.command import AnyCommand
from tenure.engine.task.command import (
    CancelTask,
    ClaimTasks,
    CompleteById,
    ConfirmTasks,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    PauseTask,
    ResumeTask,
    RetryTask,
    TerminateTask,
)
from tenure.engine.worker.command import (
    CloseSession,
    DeregisterWorker,
    DrainWorker,
    EvictWorker,
    FailCall,
    Heartbeat,
    OpenSession,
    RegisterWorker,
    ReportHeld,
)
from tenure.errors import InvalidArgument, PayloadTooLarge


def check(command: AnyCommand) -> None:
    """Raise the typed error for the first thing that is wrong with a command."""
    checker = _BY_TYPE.get(type(command))
    if checker is not None:
        checker(command)


def _namespace(value: str) -> None:
    """Check a namespace; the edges have made it canonical."""
    if checks.namespace(value) != value:
        message = "namespace must be tenant/workspace here"
        raise InvalidArgument(message, field="namespace")


def _enqueue(command: EnqueueTasks) -> None:
    _namespace(command.namespace)
    if not command.tasks:
        message = "tasks must not be empty"
        raise InvalidArgument(message, field="tasks")
    if len(command.tasks) > limits.BULK_ENQUEUE_MAX:
        message = f"tasks must be at most {limits.BULK_ENQUEUE_MAX}"
        raise PayloadTooLarge(message, limit=limits.BULK_ENQUEUE_MAX)
    for new in command.tasks:
        enqueue.check_new(new)
    if len(command.tasks) > 1 and len({new.id for new in command.tasks}) < len(command.tasks):
        message = "taskId must not be used twice in one request"
        raise InvalidArgument(message, field="taskId")


def _claim(command: ClaimTasks) -> None:
    _namespace(command.namespace)
    checks.worker_id(command.worker_id)
    checks.name(command.queue, "queue")
    if not 0 < len(command.types) <= limits.TYPES_PER_WORKER_MAX:
        message = f"types must be 1 to {limits.TYPES_PER_WORKER_MAX}"
        raise InvalidArgument(message, field="types")
    for each in command.types:
        checks.name(each, "types")
    if command.max_tasks != 1:
        checks.integer(command.max_tasks, "maxTasks", 1, limits.WORKER_SLOTS_MAX)
    checks.integer(command.wait_ms, "waitMs", 0, limits.LONG_POLL_MS)


def _refs(namespace: str, worker_id: str | None, items: tuple[Any, ...]) -> None:
    _namespace(namespace)
    if worker_id is not None:
        checks.worker_id(worker_id)
    if len(items) > limits.HELD_SET_MAX:
        message = f"items must be at most {limits.HELD_SET_MAX}"
        raise PayloadTooLarge(message, limit=limits.HELD_SET_MAX)
    for item in items:
        checks.task_id(item.task_id, "taskId")
        if item.attempt != 1:
            checks.attempt(item.attempt)


def _confirm(command: ConfirmTasks) -> None:
    _refs(command.namespace, command.worker_id, command.items)


def _beats(command: HeartbeatTasks) -> None:
    _refs(command.namespace, command.worker_id, command.items)
    for item in command.items:
        if item.details is not None:
            checks.payload(item.details, "details")
        if item.percent is not None:
            checks.number(item.percent, "progressPct", 0, 100)
        if item.message is not None:
            checks.text(item.message, "message", bytes_max=limits.ERROR_MESSAGE_BYTES_MAX)


def _finish(command: FinishTasks) -> None:
    _refs(command.namespace, command.worker_id, command.items)
    for item in command.items:
        _outcome(item)


def _outcome(item: Finish) -> None:
    output = item.output
    if output is not None and (type(output) is not bytes or len(output) > _SMALL_BYTES):
        checks.payload(output, "output")
    if item.output_encoding:
        checks.name(item.output_encoding, "outputEncoding")
    if item.error is not None:
        _error(item.error)
    elif item.kind is _FAILED:
        message = "a failed attempt needs its error"
        raise InvalidArgument(message, field="error")
    if item.wake_at_ms:
        checks.instant_ms(item.wake_at_ms, "wakeAt")
    if item.wake_seq:
        checks.integer(item.wake_seq, "wakeSeq", 0, _MOST)


def _error(error: ErrorInfo) -> None:
    checks.text(error.message, "error.message", bytes_max=limits.ERROR_MESSAGE_BYTES_MAX)
    checks.text(error.type, "error.type", bytes_max=limits.TEXT_BYTES_MAX)
    checks.text(error.stack_trace, "error.stackTrace", bytes_max=limits.STACK_TRACE_BYTES_MAX)
    if error.details is not None:
        checks.payload(error.details, "error.details")
    if error.next_delay_ms is not None:
        checks.duration_ms(error.next_delay_ms, "error.nextRetryDelayMs", minimum=0)


def _complete(command: CompleteById) -> None:
    _namespace(command.namespace)
    checks.task_id(command.finish.task_id, "taskId")
    if command.finish.attempt:
        checks.attempt(command.finish.attempt)
    _outcome(command.finish)


def _task(command: PauseTask | ResumeTask | TerminateTask) -> None:
    _namespace(command.namespace)
    checks.task_id(command.task_id, "taskId")


def _cancel(command: CancelTask) -> None:
    _namespace(command.namespace)
    checks.task_id(command.task_id, "taskId")
    checks.text(command.reason, "reason", bytes_max=limits.TEXT_BYTES_MAX)


def _retry(command: RetryTask) -> None:
    _namespace(command.namespace)
    checks.task_id(command.task_id, "taskId")
    checks.task_id(command.new_task_id, "newTaskId")


def _register(command: RegisterWorker) -> None:
    _namespace(command.namespace)
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
        checks.name(new.name, "name")
    checks.text(new.hostname, "hostname", bytes_max=limits.TEXT_BYTES_MAX)
    checks.integer(new.pid, "pid", 0, 2**31 - 1)
    checks.text(new.software_version, "version", bytes_max=limits.TEXT_BYTES_MAX)
    checks.labels(new.labels)
    if new.lease_ms:
        checks.duration_ms(new.lease_ms, "leaseDurationMs")


def _drain(command: DrainWorker) -> None:
    _worker(command)
    checks.duration_ms(command.deadline_ms, "deadlineMs")


def _worker(
    command: DrainWorker | DeregisterWorker | EvictWorker | FailCall | CloseSession,
) -> None:
    _namespace(command.namespace)
    checks.worker_id(command.worker_id)


def _session(command: OpenSession) -> None:
    _refs(command.namespace, command.worker_id, command.held)
    checks.integer(command.window, "window", 0, limits.WORKER_SLOTS_MAX)
    # Room for those that are counted on from the last one.
    checks.integer(command.session_no, "sessionNo", 0, 2**30)


def _held(command: ReportHeld) -> None:
    for refs in (command.bound, command.unbound, command.held or ()):
        _refs(command.namespace, command.worker_id, refs)


def _heartbeat(command: Heartbeat) -> None:
    _namespace(command.namespace)
    checks.worker_id(command.worker_id)
    beat = command.beat
    if type(beat.token) is not int or not 0 <= beat.token <= _SMALL_COUNT:
        checks.integer(beat.token, "token", 0, _MOST)
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
    """Name the first counter that is wrong; most are small, and never come here."""
    checks.integer(beat.total_completed, "totalCompleted", -1, _MOST)
    checks.integer(beat.total_failed, "totalFailed", -1, _MOST)
    checks.integer(beat.completed_delta, "completedDelta", 0, 2**31 - 1)
    checks.integer(beat.failed_delta, "failedDelta", 0, 2**31 - 1)
    checks.integer(beat.active_count, "activeCount", 0, 2**31 - 1)
    checks.integer(beat.loop_lag_ms, "loopLagMs", 0, 2**31 - 1)
    checks.integer(beat.stuck_count, "stuckCount", 0, 2**31 - 1)


_SMALL_COUNT: Final = 2**30


def _queue(command: SetQueue) -> None:
    _namespace(command.namespace)
    checks.name(command.name, "queue")
    if command.concurrency_max is not None:
        checks.integer(command.concurrency_max, "concurrencyMax", 0, 2**31 - 1)


def _create_namespace(command: CreateNamespace) -> None:
    _namespace(command.name)


def _set_namespace(command: SetNamespace) -> None:
    _namespace(command.name)


def _create_key(command: CreateKey) -> None:
    checks.name(command.name, "name")
    if len(command.namespaces) > limits.KEY_NAMESPACES_MAX:
        message = f"namespaces must be at most {limits.KEY_NAMESPACES_MAX}; none means all"
        raise InvalidArgument(message, field="namespaces")
    for each in command.namespaces:
        if checks.namespace(each, "namespaces") != each:
            message = "namespaces must be tenant/workspace here"
            raise InvalidArgument(message, field="namespaces")
    if command.expires_in_ms:
        checks.duration_ms(command.expires_in_ms, "expiresInMs")


def _revoke_key(command: RevokeKey) -> None:
    api_key.check_id(command.key_id)


_MOST: Final = 2**62
_FAILED: Final = FinishKind.FAILED
# Most payloads are far below any limit.
_SMALL_BYTES: Final = 65_536
# The command types and their functions agree line by line; a table cannot say so to mypy.
_BY_TYPE: Final[dict[type, Callable[[Any], None]]] = {
    EnqueueTasks: _enqueue,
    ClaimTasks: _claim,
    ConfirmTasks: _confirm,
    HeartbeatTasks: _beats,
    FinishTasks: _finish,
    CompleteById: _complete,
    CancelTask: _cancel,
    PauseTask: _task,
    ResumeTask: _task,
    TerminateTask: _task,
    RetryTask: _retry,
    RegisterWorker: _register,
    DrainWorker: _drain,
    DeregisterWorker: _worker,
    EvictWorker: _worker,
    OpenSession: _session,
    CloseSession: _worker,
    FailCall: _worker,
    ReportHeld: _held,
    Heartbeat: _heartbeat,
    SetQueue: _queue,
    CreateNamespace: _create_namespace,
    SetNamespace: _set_namespace,
    CreateKey: _create_key,
    RevokeKey: _revoke_key,
}
