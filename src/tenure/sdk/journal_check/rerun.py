"""Runs a body up to the end of its journal, and carries nothing out."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import logging
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, Final

import tenure
from tenure.sdk.failure import TaskFailed
from tenure.sdk.journal_check.finding import Finding, Verdict
from tenure.sdk.journal_check.recorded import RecordedRun
from tenure.sdk.journal_check.value_watch import WatchingConverter
from tenure.sdk.payload import Codec, Payload, PayloadError
from tenure.sdk.worker.run import wire
from tenure.sdk.workflow.context import RunInfo, WorkflowContext
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.ending import Ending, Parked
from tenure.sdk.workflow.guard import Guard
from tenure.sdk.workflow.journal import Entry, Mismatch
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.step import Step
from tenure.v1 import task_pb2

REST_S: Final = 5.0
"""How long a body may run without waiting for anything; re-running 10,000 entries takes 0.1 s."""

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_exception.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_exception.restype = ctypes.c_int
# How long code that never gives its loop a turn is told to end, and how often.
_STOP_S: Final = 1.0
_STOP_EVERY_S: Final = 0.05
_OWN: Final = (str(PurePath(tenure.__file__).parent), str(PurePath(asyncio.__file__).parent))
_checking = threading.local()


class _Stop(BaseException):
    """Set in a thread whose body does not come to rest."""


def rerun(
    workflow: Workflow[..., Any],
    recorded: RecordedRun,
    *,
    codec: Codec | None = None,
    guard: Guard = "refuse",
    rest_s: float = REST_S,
) -> Finding:
    """Return how a run fits a workflow; its body has ``rest_s`` to come to rest."""
    _silence_log()
    checked = _Rerun(workflow, recorded, WatchingConverter(codec), guard)
    # A thread of its own has no loop that runs, and a body that hangs does not take the caller.
    thread = threading.Thread(target=checked.play, args=(rest_s,), name="tenure-check", daemon=True)
    thread.start()
    thread.join(rest_s + _STOP_S)
    until_s = time.monotonic() + _STOP_S
    while thread.is_alive() and time.monotonic() < until_s:
        _set_exception(thread.ident or 0, ctypes.py_object(_Stop))
        thread.join(_STOP_EVERY_S)
    return checked.finding or checked.restless(rest_s)


class _Rerun:
    """One re-run: the port of its body, which carries nothing out."""

    # A run begins nothing while this is not certain.
    is_certain = False
    is_draining = False

    def __init__(
        self,
        workflow: Workflow[..., Any],
        recorded: RecordedRun,
        converter: WatchingConverter,
        guard: Guard,
    ) -> None:
        self.finding: Finding | None = None
        self._workflow = workflow
        self._recorded = recorded
        self._converter = converter
        self._callback: Callable[[], None] | None = None
        self._ending: Ending | None = None
        self._begun_at_ms = _begun_at_ms(recorded)
        self._run = Run(
            self,
            converter,
            journal_id=f"{recorded.run.generation}:{recorded.run.run_id}",
            begun_at_ms=self._begun_at_ms,
            guard=guard,
        )

    def play(self, rest_s: float) -> None:
        """Run the body in this thread, and note what was found."""
        _checking.is_on = True
        try:
            self.finding = self._play(rest_s)
        except _Stop:
            self.finding = self.restless(rest_s)
        finally:
            _checking.is_on = False

    def restless(self, rest_s: float, error: _Stop | None = None) -> Finding:
        """Say that the body did not come to rest."""
        line = self._run.line if error is None else _line(error)
        message = f"it runs for {rest_s:g} s and waits for nothing, at {line}"
        return self._found(Verdict.RESTLESS, message)

    def _play(self, rest_s: float) -> Finding:
        run, recorded = self._run, self._recorded.run
        given = Payload(recorded.options.encoding, recorded.input)
        self._converter.watch("the input", given.data)
        try:
            arguments = self._workflow.signature.decode(self._converter, given)
        except PayloadError as error:
            text = f"The input does not fit workflow {self._workflow.name}: {error}"
            return self._found(Verdict.PARKS, text)
        context = WorkflowContext(run, self._info())
        run.start(lambda: self._workflow.function(context, **arguments), contextvars.Context())
        entries = [self._entry(each) for each in self._recorded.entries]
        run.hand_out(recorded.attempts + 1, entries, len(entries))
        until_s = time.monotonic() + rest_s
        while self._callback is not None:
            if time.monotonic() > until_s:
                return self._put_aside(self.restless(rest_s))
            callback, self._callback = self._callback, None
            callback()
        return self._put_aside(self._judge(rest_s))

    def _entry(self, found: task_pb2.Entry) -> Entry:
        entry = wire.from_wire(found)
        self._converter.watch(entry.key, entry.output)
        return entry

    def _judge(self, rest_s: float) -> Finding:
        if isinstance(self._ending, Parked):
            return self._parks(self._ending.mismatch)
        main = self._run.main
        if main is None or not main.done():
            return self._found(Verdict.SAFE)
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if error is None or self._is_recorded(error):
            return self._found(Verdict.SAFE)
        if isinstance(error, _Stop):
            return self.restless(rest_s, error)
        return self._found(Verdict.RAISES, _raised(error))

    def _is_recorded(self, error: BaseException) -> bool:
        """Tell whether a body ends with what was recorded: a failure, or a cancel."""
        if self._recorded.has_ended:
            return True
        # At rest, the code that ran so far did not end with it.
        is_told = isinstance(error, TaskFailed) or self._run.is_cancel_requested
        return is_told and not self._recorded.is_at_rest

    def _parks(self, mismatch: Mismatch) -> Finding:
        text = f"{mismatch.problem} at position {mismatch.position}: {mismatch.message}"
        return self._found(Verdict.PARKS, text, mismatch.position)

    def _found(self, verdict: Verdict, message: str = "", position: int = 0) -> Finding:
        warnings = tuple(self._converter.warnings)
        return Finding(verdict=verdict, message=message, position=position, warnings=warnings)

    def _put_aside(self, finding: Finding) -> Finding:
        self._run.put_aside()
        return finding

    def _info(self) -> RunInfo:
        run = self._recorded.run
        return RunInfo(
            run_id=run.run_id,
            type=run.workflow_type,
            queue=run.task_queue,
            namespace=run.namespace_id,
            generation=run.generation,
            labels=dict(run.labels),
            begun_at=datetime.fromtimestamp(self._begun_at_ms / 1_000, UTC),
        )

    # -- What the body asks of its port

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Keep the callback: the re-run takes it next."""
        self._callback = callback

    def end(self, ending: Ending) -> None:
        """Keep how the attempt ended."""
        self._ending = ending

    @property
    def server_now_ms(self) -> int:
        """No time passes."""
        return self._run.now_ms

    def send(self, entry: Entry) -> None:
        """Record nothing."""

    def start_step(self, step: Step[Any], retries: Entry | None) -> None:
        """Run nothing."""

    def stop_step(self, step: Step[Any]) -> None:
        """Stop nothing."""

    def publish(self, state: Payload | None, percent: float | None, message: str | None) -> None:
        """Show nothing."""

    def fetch(self, after: int) -> None:
        """Fetch nothing: the whole journal is here."""

    def wake_at(self, at_ms: int | None) -> None:
        """Wake nothing: no time passes."""


def _begun_at_ms(recorded: RecordedRun) -> int:
    run = recorded.run
    begun_at = run.begun_at if run.HasField("begun_at") else run.created_at
    return begun_at.ToMilliseconds()


def _raised(error: BaseException) -> str:
    name = type(error).__name__
    return f"{name}: {error} ({_line(error)})" if str(error) else f"{name} ({_line(error)})"


def _line(error: BaseException) -> str:
    """Return the innermost line of user code that an exception has passed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OWN):
            return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
    return "unknown line"


def _silence_log() -> None:
    """Let bodies that are checked log nothing: those that run have done it."""
    for name in ("tenure.workflow", "tenure.worker"):
        log = logging.getLogger(name)
        if _is_heard not in log.filters:
            log.addFilter(_is_heard)


def _is_heard(_record: logging.LogRecord) -> bool:
    return not getattr(_checking, "is_on", False)
