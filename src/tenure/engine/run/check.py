"""Checks of the commands about runs: what is wrong is named before anything is loaded."""

from __future__ import annotations

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.journal.entry import BY_HOLDER, EntryBody, NewEntry
from tenure.core.run import external_id
from tenure.core.run import start as run_start
from tenure.engine.check import check_error, check_namespace, check_refs
from tenure.engine.run import command as c
from tenure.errors import InvalidArgument, PayloadTooLarge


def start_run(command: c.StartRun) -> None:
    """Check a new run and the signals that come with it."""
    check_namespace(command.namespace)
    run_start.check_new(command.new)
    if command.external_id:
        external_id.check_id(command.external_id)
    if len(command.signals) > limits.START_SIGNALS_MAX:
        message = f"signals must be at most {limits.START_SIGNALS_MAX}"
        raise PayloadTooLarge(message, limit=limits.START_SIGNALS_MAX)
    for each in command.signals:
        _signal(each)


def _signal(signal: c.NewSignal) -> None:
    checks.name(signal.name, "signal")
    if signal.payload is not None:
        checks.payload(signal.payload, "payload", bytes_max=limits.SIGNAL_BYTES_MAX)
    if signal.encoding:
        checks.name(signal.encoding, "encoding")
    if signal.signal_id:
        checks.name(signal.signal_id, "signalId")
    checks.text(signal.sender, "sender", bytes_max=limits.TEXT_BYTES_MAX)


def record_steps(command: c.RecordSteps) -> None:
    """Check what workers append, each entry by itself."""
    check_refs(command.namespace, command.worker_id, command.items)
    for item in command.items:
        checks.integer(item.first_no, "firstNo", 1, limits.ATTEMPT_MAX)
        if not 0 < len(item.entries) <= limits.STEP_ENTRIES_MAX:
            message = f"entries must be 1 to {limits.STEP_ENTRIES_MAX}"
            raise InvalidArgument(message, field="entries")
        for entry in item.entries:
            _entry(entry)


def _entry(entry: NewEntry) -> None:
    if entry.kind not in BY_HOLDER:
        message = f"an entry of kind {entry.kind.name} is written by the server alone"
        raise InvalidArgument(message, field="kind")
    checks.text(entry.key, "key", bytes_max=limits.STEP_KEY_BYTES_MAX)
    body = entry.body
    _result(body)
    checks.integer(body.index, "index", 0, limits.ATTEMPT_MAX)
    checks.integer(body.attempts, "attempts", 0, limits.ATTEMPT_MAX)
    for field, instant_ms in (
        ("startedAt", body.started_at_ms),
        ("fireAt", body.fire_at_ms),
        ("nextAt", body.next_at_ms),
    ):
        if instant_ms:
            checks.instant_ms(instant_ms, field)
    checks.duration_ms(body.took_ms, "tookMs", minimum=0)
    checks.text(body.site, "site", bytes_max=limits.STEP_SITE_BYTES_MAX)
    if body.signal_id or body.sender:
        message = "signalId and sender belong to signals"
        raise InvalidArgument(message, field="signalId")


def _result(body: EntryBody) -> None:
    if body.output is not None:
        checks.payload(body.output, "output")
    if body.encoding:
        checks.name(body.encoding, "encoding")
    if body.error is not None:
        check_error(body.error)
        # One entry goes over the wire as a whole.
        if len(body.output or b"") + len(body.error.details or b"") > limits.PAYLOAD_BYTES_MAX:
            message = f"output and error.details must be at most {limits.PAYLOAD_BYTES_MAX} bytes"
            raise PayloadTooLarge(message, limit=limits.PAYLOAD_BYTES_MAX)


def signal_run(command: c.SignalRun) -> None:
    """Check one run and the signal to it."""
    _run(command)
    _signal(command.signal)


def cancel_run(command: c.CancelRun) -> None:
    """Check one run, and the reason to cancel it."""
    _run(command)
    checks.text(command.reason, "reason", bytes_max=limits.TEXT_BYTES_MAX)


def change_run(command: c.ResumeRun | c.TerminateRun) -> None:
    """Check one run by its id."""
    _run(command)


def retry_run(command: c.RetryRun) -> None:
    """Check the finished run, and the id of the new one."""
    _run(command)
    checks.task_id(command.new_run_id, "newRunId")


def _run(command: c.SignalRun | c.RetryRun | c.CancelRun | c.ResumeRun | c.TerminateRun) -> None:
    check_namespace(command.namespace)
    checks.task_id(command.run_id, "runId")
