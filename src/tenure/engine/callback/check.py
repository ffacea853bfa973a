"""Checks of callbacks: the same as those of every report, and of what only a process says."""

from __future__ import annotations

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.task.callback import CallbackReport
from tenure.engine.callback import command as c
from tenure.engine.check import check_namespace
from tenure.engine.task import check as task_check
from tenure.errors import InvalidArgument


def start_callback(command: c.StartCallback) -> None:
    """Check a start: it names its process."""
    check_namespace(command.namespace)
    if not command.said.worker:
        message = "workerId must not be empty"
        raise InvalidArgument(message, field="workerId")
    _report(command.said)


def beat_callback(command: c.BeatCallback) -> None:
    """Check a heartbeat."""
    check_namespace(command.namespace)
    task_check.beat(command.item)
    _report(command.item.said)


def complete_callback(command: c.CompleteCallback) -> None:
    """Check an end."""
    check_namespace(command.namespace)
    task_check.outcome(command.item)
    _report(command.item.said)


def _report(said: CallbackReport | None) -> None:
    assert said is not None
    checks.text(said.worker, "workerId", bytes_max=limits.NAME_LENGTH_MAX)
    checks.text(said.phase, "cancelledDuringPhase", bytes_max=limits.TEXT_BYTES_MAX)
    if said.output is not None:
        checks.payload(said.output, "output")
    if said.partial_progress is not None:
        checks.payload(
            said.partial_progress, "partialProgress", bytes_max=limits.PARTIAL_PROGRESS_BYTES_MAX
        )
    _metrics(said.metrics)


def _metrics(metrics: dict[str, float]) -> None:
    if len(metrics) > limits.CALLBACK_METRICS_MAX:
        message = f"metrics must have at most {limits.CALLBACK_METRICS_MAX} entries"
        raise InvalidArgument(message, field="metrics")
    for name in metrics:
        checks.name(name, "metrics")
