"""The body of a run as a worker, or a replay, executes it: the real one, with a look inside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime
from typing import Any, Protocol

from tenure.core.journal import entry as stored
from tenure.core.task.record import Task
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.sdk import failure
from tenure.sdk.payload import Payload
from tenure.sdk.workflow.context import RunInfo, WorkflowContext
from tenure.sdk.workflow.journal import Entry, Kind, Made, Recorded
from tenure.sdk.workflow.port import RunIdentity, RunPort
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.scope import CallKey
from tenure.sdk.workflow.step import Step, StepFunction
from tenure.v1 import journal_pb2, task_pb2
from tests.sim import flow

Calls = dict[str, str]
"""What a body has called and waits for, by key."""


class BodyPort(RunPort, Protocol):
    """Who executes a body, and wants to know what it has called."""

    def at_frontier(self, seen: int, calls: Calls) -> None:
        """Hear what a body has called when it had heard of so many entries."""
        ...


class Childless:
    """The part of a port that programs without children never ask for."""

    may_linger = False

    def fetch_open(self, open_after: str) -> None:
        raise AssertionError(open_after)

    def fetch_group(self, group_key: str, after: int) -> None:
        raise AssertionError(group_key, after)

    def spawn(self, report: journal_pb2.SpawnReport) -> None:
        raise AssertionError(report)

    def cancel_children(self, request: journal_pb2.ChildCancel) -> None:
        raise AssertionError(request)

    async def signal(self, run_id: str, name: str, payload: Payload, signal_id: str) -> None:
        raise AssertionError(run_id, name, payload, signal_id)

    def post(self, callback: Callable[[], None]) -> None:
        raise AssertionError(callback)


class Body(Run):
    """A run that tells at each frontier what it has called."""

    def __init__(self, port: BodyPort, task: Task) -> None:
        assert task.link is not None
        assert task.link.journal_id is not None
        assert task.progress.run is not None
        begun_at_ms = task.progress.run.begun_at_ms
        super().__init__(
            port, flow.CONVERTER, RunIdentity(run_id=task.id, begun_at_ms=begun_at_ms), guard="off"
        )
        self._watcher = port
        self._calls: Calls = {}
        info = RunInfo(
            run_id=task.id,
            type=task.type,
            queue=task.queue,
            namespace=task.namespace,
            begun_at=datetime.fromtimestamp(begun_at_ms / 1_000, UTC),
        )
        program = flow.program_of(task.input or b"")
        context = WorkflowContext(self, info, program)
        self.start(lambda: program.function(context), Context())

    def call(self, call: CallKey, kind: Kind, made: Made) -> Recorded | None:
        known = super().call(call, kind, made)
        self._calls[call.key] = f"{kind.name} {call.index}"
        return known

    def start_call(self, step: Step[Any], function: StepFunction) -> None:
        super().start_call(step, function)
        self._calls[step.key] += f" {step.args}"

    def _at_frontier(self) -> None:
        timers = {f"timer {key}": str(at_ms) for at_ms, key, _ in self.timers.wakes()}
        # The next attempt may take the old way while the new one is not recorded.
        if not self._awaits_patch:
            self._watcher.at_frontier(self.journal.seen, {**self._calls, **timers})
        super()._at_frontier()


def executed(step: Step[Any]) -> Entry:
    """Run the function of a step to its end, and return what is recorded."""
    assert step.function is not None
    entry = Entry(Kind.STEP, step.key, step.call_key.index)
    try:
        payload = flow.CONVERTER.encode(step.function.call(*step.args, **step.kwargs))
        entry.output, entry.encoding = payload.data, payload.encoding
    except ValueError as error:
        entry.error = failure.to_wire(error, flow.CONVERTER)
    return entry


def error_of(error: BaseException) -> ErrorInfo:
    """Return what is stored of an error that a body raised."""
    return ErrorInfo(ErrorCategory.USER_CODE, str(error), type(error).__name__)


def is_cancelled(error: BaseException) -> bool:
    """Tell whether a body ended because it was cancelled."""
    return isinstance(error, asyncio.CancelledError)


def reported(entry: Entry) -> stored.NewEntry:
    """Return an entry of a body as its worker reports it."""
    error = None
    if entry.error is not None:
        error = ErrorInfo(ErrorCategory.USER_CODE, entry.error.message, entry.error.type)
    body = stored.EntryBody(
        index=entry.index,
        output=entry.output,
        encoding=entry.encoding,
        error=error,
        fire_at_ms=entry.fire_at_ms,
    )
    return stored.NewEntry(stored.EntryKind(entry.kind), entry.key, body)


def received(entry: stored.Entry) -> Entry:
    """Return a stored entry as a body gets it."""
    content = entry.content
    error = None
    if content.error is not None:
        error = task_pb2.TaskError(message=content.error.message, type=content.error.type)
    return Entry(
        Kind(entry.kind),
        entry.key,
        content.index,
        output=content.output,
        encoding=content.encoding,
        error=error,
        fire_at_ms=content.fire_at_ms,
        pos=entry.pos,
        at_ms=entry.at_ms,
        attempt=entry.attempt,
        no=entry.no,
    )
