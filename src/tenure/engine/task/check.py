"""Checks of task commands: invalid input gets its typed error before anything is accepted."""

from __future__ import annotations

from typing import Final

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.task import enqueue
from tenure.engine.check import check_error, check_namespace, check_refs
from tenure.engine.run.wish_check import check_anew, check_wish
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument, PayloadTooLarge

_WITH_ERROR: Final = frozenset({c.FinishKind.FAILED, c.FinishKind.PARKED})
_YIELDED: Final = c.FinishKind.YIELDED
_CONTINUED: Final = c.FinishKind.CONTINUED
_OF_RUNS: Final = frozenset({_YIELDED, _CONTINUED})
# Most payloads are far below any limit.
_SMALL_BYTES: Final = 65_536


def enqueue_tasks(command: c.EnqueueTasks) -> None:
    """Check every new task, and that no id is used twice."""
    check_namespace(command.namespace)
    if not command.tasks:
        message = "tasks must not be empty"
        raise InvalidArgument(message, field="tasks")
    if len(command.tasks) > limits.BULK_ENQUEUE_MAX:
        message = f"tasks must have at most {limits.BULK_ENQUEUE_MAX} entries"
        raise PayloadTooLarge(message, limit=limits.BULK_ENQUEUE_MAX)
    for new in command.tasks:
        enqueue.check_new(new)
    if len(command.tasks) > 1 and len({new.id for new in command.tasks}) < len(command.tasks):
        message = "taskId must not be used twice in one request"
        raise InvalidArgument(message, field="taskId")


def claim_tasks(command: c.ClaimTasks) -> None:
    """Check a poll: the worker, the types, and the wait."""
    check_namespace(command.namespace)
    checks.worker_id(command.worker_id)
    checks.name(command.queue, "queue")
    if not 0 < len(command.types) <= limits.TYPES_PER_WORKER_MAX:
        message = f"types must have 1 to {limits.TYPES_PER_WORKER_MAX} entries"
        raise InvalidArgument(message, field="types")
    for each in command.types:
        checks.name(each, "types")
    if command.max_tasks != 1:
        checks.integer(command.max_tasks, "maxTasks", 1, limits.WORKER_SLOTS_MAX)
    checks.integer(command.wait_ms, "waitMs", 0, limits.LONG_POLL_MS)


def confirm_tasks(command: c.ConfirmTasks) -> None:
    """Check the attempts that are confirmed."""
    check_refs(command.namespace, command.worker_id, command.items)


def heartbeat_tasks(command: c.HeartbeatTasks) -> None:
    """Check the attempts that make progress, and their reports."""
    check_refs(command.namespace, command.worker_id, command.items)
    for item in command.items:
        beat(item)


def beat(item: c.TaskBeat) -> None:
    """Check the progress of one attempt."""
    if item.details is not None:
        checks.payload(item.details, "details")
    if item.percent is not None:
        checks.number(item.percent, "progressPct", 0, 100)
    if item.message is not None:
        checks.text(item.message, "message", bytes_max=limits.ERROR_MESSAGE_BYTES_MAX)


def finish_tasks(command: c.FinishTasks) -> None:
    """Check the ended attempts, each with its outcome."""
    check_refs(command.namespace, command.worker_id, command.items)
    for item in command.items:
        outcome(item)


def outcome(item: c.Finish) -> None:
    """Check the end of one attempt."""
    output = item.output
    if output is not None and (type(output) is not bytes or len(output) > _SMALL_BYTES):
        checks.payload(output, "output")
    if item.output_encoding:
        checks.name(item.output_encoding, "outputEncoding")
    if item.error is not None:
        check_error(item.error)
    elif item.kind in _WITH_ERROR:
        message = "an attempt that failed or parked needs its error"
        raise InvalidArgument(message, field="error")
    if item.kind in _OF_RUNS or item.wish is not None or item.anew is not None:
        _end_of_run(item)


def _end_of_run(item: c.Finish) -> None:
    if item.wish is not None:
        check_wish(item.wish)
    elif item.kind is _YIELDED:
        message = "a run that yields needs the position that it has seen"
        raise InvalidArgument(message, field="seen")
    if item.anew is not None:
        check_anew(item.anew)
    elif item.kind is _CONTINUED:
        message = "a run that begins anew needs its next input"
        raise InvalidArgument(message, field="nextInput")


def complete_by_id(command: c.CompleteById) -> None:
    """Check one task, one attempt of it if given, and its outcome."""
    check_namespace(command.namespace)
    checks.task_id(command.finish.task_id, "taskId")
    if command.finish.attempt:
        checks.attempt(command.finish.attempt)
    outcome(command.finish)


def change_task(command: c.PauseTask | c.ResumeTask | c.TerminateTask) -> None:
    """Check one task by its id."""
    check_namespace(command.namespace)
    checks.task_id(command.task_id, "taskId")


def cancel_task(command: c.CancelTask) -> None:
    """Check one task, and the reason to cancel it."""
    check_namespace(command.namespace)
    checks.task_id(command.task_id, "taskId")
    checks.text(command.reason, "reason", bytes_max=limits.TEXT_BYTES_MAX)


def retry_task(command: c.RetryTask) -> None:
    """Check the finished task, and the id of the new one."""
    check_namespace(command.namespace)
    checks.task_id(command.task_id, "taskId")
    checks.task_id(command.new_task_id, "newTaskId")
