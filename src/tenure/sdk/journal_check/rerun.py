"""Runs a body up to the end of its journal, and carries nothing out."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, Final

import tenure
from tenure.sdk.failure import TaskFailed
from tenure.sdk.instant import datetime_of
from tenure.sdk.journal_check.finding import Finding, Verdict
from tenure.sdk.journal_check.recorded import RecordedRun
from tenure.sdk.journal_check.value_watch import WatchingConverter
from tenure.sdk.payload import Codec, Converter, Payload, PayloadError
from tenure.sdk.worker.run import wire
from tenure.sdk.workflow.body import start_body
from tenure.sdk.workflow.child import ChildCall
from tenure.sdk.workflow.context import RunInfo
from tenure.sdk.workflow.definition import Changes, Workflow
from tenure.sdk.workflow.ending import Ending, Parked, continuation
from tenure.sdk.workflow.guard import Guard
from tenure.sdk.workflow.journal import Entry, Kind, Mismatch, OpenCall, Recorded
from tenure.sdk.workflow.port import RunIdentity, RunPort
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.step import Step
from tenure.sdk.workflow.sync.body_thread import BodyThread
from tenure.v1 import journal_pb2, task_pb2

REST_S: Final = 5.0
"""How long a body may run without waiting for anything; re-running 10,000 entries takes 0.1 s."""

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_exception.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_exception.restype = ctypes.c_int
# How long code that never gives its loop a turn is told to end, and how often.
_STOP_S: Final = 1.0
_STOP_EVERY_S: Final = 0.05
_OWN: Final = (str(PurePath(tenure.__file__).parent), str(PurePath(asyncio.__file__).parent))
_CHILDREN_LOOKED_AT: Final = 20
_is_checking: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "tenure_is_checking", default=False
)


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
    checked = _Rerun(workflow, recorded, WatchingConverter(codec), guard, rest_s)
    # A thread of its own has no loop that runs, and a body that hangs does not take the caller.
    thread = threading.Thread(target=checked.play, args=(rest_s,), name="tenure-check", daemon=True)
    thread.start()
    thread.join(rest_s + _STOP_S)
    until_s = time.monotonic() + _STOP_S
    while thread.is_alive() and time.monotonic() < until_s:
        _set_exception(thread.ident or 0, ctypes.py_object(_Stop))
        thread.join(_STOP_EVERY_S)
    if checked.failure is not None:
        raise checked.failure
    return checked.finding or checked.restless(rest_s)


class _CheckedRun(Run):
    """A run that notes which patches its body asks for, and which open children it calls."""

    def __init__(
        self,
        port: RunPort,
        converter: Converter,
        identity: RunIdentity,
        *,
        changes: Changes,
        guard: Guard,
    ) -> None:
        super().__init__(port, converter, identity, changes=changes, guard=guard)
        self.patches: dict[str, bool] = {}
        self.open_calls: list[tuple[ChildCall, OpenCall]] = []

    def patched(self, patch: str, line: str) -> bool:
        has_it = self.patches[patch] = super().patched(patch, line)
        return has_it

    def start_child(self, call: ChildCall, known: Recorded | None) -> None:
        if isinstance(known, OpenCall) and known.kind is Kind.CHILD:
            self.open_calls.append((call, known))
        super().start_child(call, known)


class _Rerun:
    """One re-run: the port of its body, which carries nothing out."""

    # A run begins nothing while this is not certain.
    is_certain = False
    is_draining = False
    may_linger = False

    def __init__(
        self,
        workflow: Workflow[..., Any],
        recorded: RecordedRun,
        converter: WatchingConverter,
        guard: Guard,
        rest_s: float,
    ) -> None:
        self.finding: Finding | None = None
        self.failure: Exception | None = None
        self._workflow = workflow
        self._recorded = recorded
        self._converter = converter
        self._callback: Callable[[], None] | None = None
        self._ending: Ending | None = None
        self._begun_at_ms = _begun_at_ms(recorded)
        self._wanted: tuple[str, int] | None = None
        # Of a body that is a plain function.
        self._thread: BodyThread | None = None
        self.patience_s = rest_s
        identity = RunIdentity(
            run_id=recorded.run.run_id,
            type=workflow.name,
            generation=recorded.run.generation,
            first_run_id=recorded.run.first_run_id,
            begun_at_ms=self._begun_at_ms,
        )
        self._run = _CheckedRun(self, converter, identity, changes=workflow.changes, guard=guard)

    def play(self, rest_s: float) -> None:
        """Run the body in this thread, and note what was found."""
        _begin_silence()
        try:
            self.finding = self._play(rest_s)
        except _Stop:
            self.finding = self.restless(rest_s)
        except Exception as error:  # noqa: BLE001 (raised again by whoever waits)
            self.failure = error
        finally:
            with contextlib.suppress(_Stop):
                self._run.put_aside()
                self._end_thread()

    def _end_thread(self) -> None:
        """Let a plain body unwind; one that computes is told to end, as that of a coroutine is."""
        thread = self._thread
        until_s = time.monotonic() + _STOP_S
        while thread is not None and not thread.join(_STOP_EVERY_S) and time.monotonic() < until_s:
            _set_exception(thread.ident, ctypes.py_object(_Stop))

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
        # A plain body has a thread of its own, which is silent as well.
        context = contextvars.Context()
        context.run(_begin_silence)
        workflow = self._workflow
        self._thread = start_body(run, self, workflow, self._info(), arguments, context)
        entries = [self._entry(each) for each in self._recorded.entries]
        run.hand_out(recorded.attempts + 1, entries, len(entries), self._open_calls())
        until_s = time.monotonic() + rest_s
        while self._go_on():
            if time.monotonic() > until_s or run.loop.is_away:
                return self.restless(rest_s)
        return self._judge(rest_s)

    def _go_on(self) -> bool:
        """Give the body its turn, or a page that it waits for; False if it is at rest."""
        if self._callback is not None:
            callback, self._callback = self._callback, None
            callback()
            return True
        if self._wanted is None:
            return False
        (key, after), self._wanted = self._wanted, None
        page = self._recorded.results(key, after)
        self._run.take_group_page(key, after, [self._entry(each) for each in page.entries])
        return True

    def _open_calls(self) -> list[OpenCall]:
        recorded = self._recorded
        return wire.open_calls(
            task_pb2.JournalPage(open=recorded.open_children, groups=recorded.open_groups)
        )

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
        if error is None or continuation(error) is not None or self._is_recorded(error):
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
        return self._found(Verdict.PARKS, mismatch.text, mismatch.position)

    def _found(self, verdict: Verdict, message: str = "", position: int = 0) -> Finding:
        return Finding(
            verdict=verdict,
            message=message,
            position=position,
            warnings=(*self._converter.warnings, *self._other_inputs()),
            patches=tuple(self._run.patches.items()),
        )

    def _other_inputs(self) -> Iterator[str]:
        """Yield what is said of open children that are called with other arguments now."""
        for call, known in self._run.open_calls[:_CHILDREN_LOOKED_AT]:
            given = self._recorded.child_input(known.task_id)
            if given is not None and not self._is_same(given, call):
                yield (
                    f"{known.key} is open and called with other arguments now ({call.step.line}): "
                    "it goes on with those it has"
                )

    def _is_same(self, given: Payload, call: ChildCall) -> bool:
        try:
            called = call.task.input_of(call.step.args, call.step.kwargs)
            return self._converter.open(given).data == called.data
        except (PayloadError, TypeError):
            return False

    def _info(self) -> RunInfo:
        run = self._recorded.run
        return RunInfo(
            run_id=run.run_id,
            type=run.workflow_type,
            queue=run.task_queue,
            namespace=run.namespace_id,
            external_id=run.external_id,
            generation=run.generation,
            labels=dict(run.labels),
            begun_at=datetime.fromtimestamp(self._begun_at_ms / 1_000, UTC),
            schedule_id=run.schedule_id,
            fire_at=datetime_of(run.fire_at.ToMilliseconds()),
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

    def fetch_open(self, open_after: str) -> None:
        """Fetch nothing: all that is open is here."""

    def fetch_group(self, group_key: str, after: int) -> None:
        """Keep which page is wanted: the re-run gets it next."""
        self._wanted = group_key, after

    def spawn(self, report: journal_pb2.SpawnReport) -> None:
        """Make nothing."""

    def cancel_children(self, request: journal_pb2.ChildCancel) -> None:
        """Cancel nothing."""

    async def signal(self, run_id: str, name: str, payload: Payload, signal_id: str) -> None:
        """Send nothing."""

    def post(self, callback: Callable[[], None]) -> None:
        """Call nothing: no step runs that could."""

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


def _begin_silence() -> None:
    """Silence the code of this context."""
    _is_checking.set(True)


def _silence_log() -> None:
    """Let bodies that are checked log nothing: those that run have done it."""
    for name in ("tenure.workflow", "tenure.worker"):
        log = logging.getLogger(name)
        if _is_heard not in log.filters:
            log.addFilter(_is_heard)


def _is_heard(_record: logging.LogRecord) -> bool:
    return not _is_checking.get()
