"""The calls of a body that end elsewhere: queued activities, child runs, and groups of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

import msgspec

from tenure.core.limits import PAYLOAD_BYTES_MAX, PRIORITY_DEFAULT
from tenure.core.run.external_id import OnFinished, OnLive
from tenure.core.task.retry import ErrorCategory
from tenure.sdk import failure
from tenure.sdk.activity.definition import Activity, signature_of
from tenure.sdk.activity.option import Options
from tenure.sdk.activity.signature import Signature
from tenure.sdk.failure import RemoteError, TaskCancelled, TaskFailed, TaskTimedOut
from tenure.sdk.payload import Converter, Payload, PayloadError, UserValue
from tenure.sdk.workflow.definition import Workflow, WorkflowOptions
from tenure.sdk.workflow.ending import Wait
from tenure.sdk.workflow.journal import Entry, OpenCall
from tenure.sdk.workflow.results import Results
from tenure.sdk.workflow.signal import Signal
from tenure.sdk.workflow.step import Step
from tenure.v1 import journal_pb2, task_pb2, task_service_pb2

if TYPE_CHECKING:
    from tenure.sdk.workflow.run import Run
    from tenure.sdk.workflow.scope import CallKey

R = TypeVar("R")
T = TypeVar("T")

OnCancel = Literal["try", "wait", "abandon"]
"""What happens when a body cancels its call of something that goes on elsewhere.

"try" asks it to end, and raises at once; "wait" raises when it has ended; "abandon" lets it go on.
"""
OnClose = Literal["cancel", "terminate", "abandon"]
"""What happens to a child when the run that made it ends."""
OnError = Literal["fail", "collect"]
"""Whether a map ends with the first item that fails, or collects failures as values."""

CLOSE_POLICIES: Final = {
    "cancel": journal_pb2.CLOSE_POLICY_CANCEL,
    "terminate": journal_pb2.CLOSE_POLICY_TERMINATE,
    "abandon": journal_pb2.CLOSE_POLICY_ABANDON,
}
_Options = Options | WorkflowOptions
_SUCCEEDED: Final = task_pb2.TASK_STATE_SUCCEEDED
_GROUP_FAILURES: Final[dict[ErrorCategory, type[TaskFailed]]] = {
    ErrorCategory.CANCELLED: TaskCancelled,
    ErrorCategory.TIMEOUT: TaskTimedOut,
}


class ChildTask(msgspec.Struct, frozen=True):
    """What the tasks of one call have in common, and how to read what they return."""

    name: str
    is_run: bool
    shared: task_pb2.NewTask
    signature: Signature
    delay_ms: int = 0
    shared_size: int = 0

    def input_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Payload:
        """Return checked arguments; raise ``TypeError`` for those that do not fit."""
        payload = self.signature.encode(self.signature.bind(args, kwargs))
        if len(payload.data) > PAYLOAD_BYTES_MAX:
            message = (
                f"The arguments of {self.name} have {len(payload.data):,} bytes, and "
                f"{PAYLOAD_BYTES_MAX:,} are allowed. Store the data elsewhere and send a reference."
            )
            raise PayloadError(message)
        return payload

    def outcome(self, entry: Entry, converter: Converter) -> UserValue:
        """Return what a child has returned; raise ``TaskFailed`` if it has failed."""
        child = entry.child
        if entry.error is None and (child is None or child.state in (0, _SUCCEEDED)):
            return converter.decode(entry.payload, self.signature.result_type)
        raise self._failure(entry, converter)

    def _failure(self, entry: Entry, converter: Converter) -> TaskFailed:
        child = entry.child or task_pb2.ChildEnd()
        result = task_service_pb2.TaskResult(
            task_id=child.task_id,
            state=child.state,
            error=entry.error,
            failure_reason=child.failure_reason,
            attempt=entry.attempts,
        )
        if self.is_run:
            return failure.of_child_run(result, converter)
        return failure.from_result(result, converter)


def task_of_activity(activity: Activity[..., Any]) -> ChildTask:
    """Return what tasks of an activity have in common; kept, because many calls are the same."""
    return _kept(activity.name, activity.options, lambda: signature_of(activity), is_run=False)


def task_of_workflow(workflow: Workflow[..., Any]) -> ChildTask:
    """Return what child runs of a workflow have in common."""
    return _kept(workflow.name, workflow.options, lambda: workflow.signature, is_run=True)


# Options are compared by identity, which is theirs as long as they are kept here.
_tasks: dict[tuple[str, int], tuple[_Options, ChildTask]] = {}
_TASKS_MAX: Final = 1_000
# What the id of a child and its place need on the wire.
_ID_BYTES: Final = 128


def _kept(
    name: str, options: _Options, signature: Callable[[], Signature], *, is_run: bool
) -> ChildTask:
    key = name, id(options)
    found = _tasks.get(key)
    if found is None:
        if len(_tasks) >= _TASKS_MAX:
            _tasks.clear()
        _refuse_of_clients(name, options)
        shared = _shared(name, options)
        task = ChildTask(name, is_run, shared, signature(), options.delay_ms, shared.ByteSize())
        found = options, task
        _tasks[key] = found
    return found[1]


def _refuse_of_clients(name: str, options: _Options) -> None:
    """Refuse options that mean nothing here."""
    if isinstance(options, WorkflowOptions) and (
        options.on_live != OnLive.RETURN or options.on_finished != OnFinished.ALLOW
    ):
        message = (
            f"{name}: on_live and on_finished are for clients. The call of a workflow makes its "
            "own run, and fails if a live one has the id."
        )
        raise ValueError(message)
    if options.idempotency_key:
        message = (
            f"{name}: idempotency_key is for clients. The call of a workflow makes its task once, "
            "and activity.info().idempotency_key is the same in each attempt."
        )
        raise ValueError(message)


def _shared(name: str, options: _Options) -> task_pb2.NewTask:
    shared = task_pb2.NewTask(
        type=name, task_queue=options.queue, options=options.to_wire(""), labels=options.labels
    )
    if options.priority != PRIORITY_DEFAULT:
        shared.priority = options.priority
    if options.run_at_ms:
        shared.run_at_ms = options.run_at_ms
    return shared


class ChildCall:
    """A call that ends elsewhere: ``sent`` of ``total`` children are on their way."""

    total = 1

    def __init__(self, run: Run, step: Step[Any], task: ChildTask) -> None:
        """Stand behind the future of a call."""
        self.step = step
        self.task = task
        self.on_cancel: OnCancel = "try"
        self.on_close: OnClose = "cancel"
        self.sent = 0
        # Whether the server has all of it.
        self.is_stored = False
        # Whether the body has cancelled it and waits for its end.
        self.is_cancel_wanted = False
        # As it was recorded; code that has changed may call at another time.
        self.known_id = ""
        self._run = run
        self._called_at = run.journal.seen
        self._called_at_ms = run.now_ms
        step.child = self

    @property
    def key(self) -> str:
        """The key of the call."""
        return self.step.key

    def adopt(self, known: OpenCall) -> None:
        """Go on with what the server has of it."""
        self.known_id = known.task_id
        self.is_stored = True
        self.sent = self.total

    @property
    def is_coming(self) -> bool:
        """Whether the server will have it, and does not have it yet."""
        return not self.is_stored and not self.step.done()

    @property
    def wait(self) -> Wait:
        """What is shown of it while a run waits for it."""
        return self._wait("child", self.id_of(0))

    def _wait(self, kind: str, detail: str) -> Wait:
        return Wait(kind, self.key, detail, self.step.line, self._called_at_ms)

    def id_of(self, item: int) -> str:
        """Return the id of a child."""
        return self.known_id or self._run.identity.child_id(self.key, item, self._called_at_ms)

    def holds_cancel(self) -> bool:
        """Ask it to end, and tell whether its future is cancelled only when it has ended."""
        # A call that was cancelled before anything else happened was never sent.
        is_new = self._run.journal.seen == self._called_at
        if self.on_cancel != "wait" or is_new or self.step.done() or self._run.is_put_aside:
            return False
        if not self.is_cancel_wanted:
            self.is_cancel_wanted = True
            self._run.children.cancel(self)
        return True

    def is_known_as(self, run_id: str) -> bool:
        """Tell whether an id, or ``external:`` and an id of the user, means a child of it."""
        return run_id == self.id_of(0)

    def outcome(self, entry: Entry, converter: Converter) -> UserValue:
        """Return what it has returned; raise what it has raised."""
        raise NotImplementedError

    def new_child(self, item: int) -> journal_pb2.NewChild:
        """Return one child of it as it is sent."""
        raise NotImplementedError

    def size_of(self, child: journal_pb2.NewChild) -> int:
        """Return about how large a child is on the wire."""
        return self.task.shared_size + len(child.task.input) + len(self.key) + _ID_BYTES

    def _new_child(self, payload: Payload, item: int) -> journal_pb2.NewChild:
        made = journal_pb2.NewChild(task=self.task.shared)
        task = made.task
        task.task_id = self.id_of(item)
        sealed = self._run.converter.seal(payload)
        task.input = sealed.data
        task.options.encoding = sealed.encoding
        if self.task.delay_ms:
            task.run_at_ms = self._called_at_ms + self.task.delay_ms
        made.close_policy = CLOSE_POLICIES[self.on_close]
        return made


class SingleCall(ChildCall):
    """The call of one activity or one run."""

    payload: Payload | None = None
    external_id = ""

    def is_known_as(self, run_id: str) -> bool:
        """Tell whether an id, or ``external:`` and an id of the user, means it."""
        return run_id in (self.id_of(0), f"external:{self.external_id}")

    def new_child(self, item: int) -> journal_pb2.NewChild:
        """Return the child as it is sent."""
        assert self.payload is not None
        made = self._new_child(self.payload, item)
        made.key, made.index = self.key, self.step.call_key.index
        if self.external_id:
            made.external_id = self.external_id
        return made

    def outcome(self, entry: Entry, converter: Converter) -> UserValue:
        """Return what it has returned; raise what it has raised."""
        return self.task.outcome(entry, converter)


class GroupCall(ChildCall):
    """The call of a map: one for many items."""

    def __init__(self, run: Run, step: Step[Any], task: ChildTask, items: Sequence[Any]) -> None:
        """Stand behind the future of a map."""
        super().__init__(run, step, task)
        self.items = items
        self.total = len(items)
        self.fails_fast = True
        self._payloads: list[Payload] = []
        self._first = 0

    @property
    def wait(self) -> Wait:
        """What is shown of it while a run waits for it."""
        return self._wait("group", f"{self.total} items")

    def check_items(self, first: int) -> None:
        """Encode the items from ``first`` on; raise ``TypeError`` for one that does not fit."""
        self._first = first
        self._payloads = []
        for item in self.items[first:]:
            try:
                self._payloads.append(self.task.input_of((item,), {}))
            except (TypeError, PayloadError) as error:
                message = f"item {first + len(self._payloads)}: {error}"
                raise type(error)(message) from error

    def adopt(self, known: OpenCall) -> None:
        """Go on behind the items that the server has."""
        self.sent = known.spawned
        self.is_stored = self.sent >= self.total
        self.check_items(self.sent)

    def new_child(self, item: int) -> journal_pb2.NewChild:
        """Return an item as it is sent."""
        made = self._new_child(self._payloads[item - self._first], item)
        made.item = item
        return made

    def outcome(self, entry: Entry, converter: Converter) -> UserValue:
        """Return the results, which are read when they are asked for."""
        group = entry.group or task_pb2.GroupEnd()
        failed = group.failed + group.cancelled
        if self.fails_fast and failed:
            raise self._failure(entry, converter)
        return Results(self._run.pages, self.key, self.items, self.task, failed)

    def _failure(self, entry: Entry, converter: Converter) -> TaskFailed:
        if entry.error is None:
            return TaskFailed("", f"An item of {self.key} ended without success")
        cause = RemoteError(entry.error, converter)
        kind = _GROUP_FAILURES.get(cause.category, TaskFailed)
        failed = kind("", f"An item of {self.key} failed: {cause}")
        failed.__cause__ = cause
        return failed


class ChildRun(Step[R]):
    """The future of a child run: await it for its result.

    >>> shop = ctx.child(close_shop, name, on_close="abandon")
    >>> await shop.signal(hurry)
    """

    def __init__(self, run: Run, call: CallKey, line: str, send: SendToChild) -> None:
        """Use ``ctx.child`` instead."""
        super().__init__(run, call, line)
        self._send = send

    @property
    def id(self) -> str:
        """The id of the run."""
        assert self.child is not None
        return self.child.id_of(0)

    @overload
    def signal(self, sig: Signal[None], /) -> Step[None]: ...
    @overload
    def signal(self, sig: Signal[T], value: T, /) -> Step[None]: ...
    @overload
    def signal(self, sig: str, value: object = None, /) -> Step[None]: ...
    def signal(self, sig: Signal[Any] | str, value: object = None, /) -> Step[None]:
        """Send a signal to the run, once; it is a step, which fails if the run has ended."""
        assert self.child is not None
        return self._send(self.id, sig, value, self.child)


SendToChild = Callable[[str, Signal[Any] | str, object, ChildCall], Step[None]]
"""Makes the step that sends a signal to a child."""
