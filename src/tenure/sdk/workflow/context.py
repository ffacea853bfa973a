"""``WorkflowContext``: what the body of a workflow can do."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar, get_args, overload

import msgspec

from tenure.core import check
from tenure.core.limits import (
    ERROR_MESSAGE_BYTES_MAX,
    GROUP_ITEMS_MAX,
    PAYLOAD_BYTES_MAX,
    RUN_STATE_BYTES_MAX,
)
from tenure.errors import InvalidArgument
from tenure.sdk.activity.definition import Activity
from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.failure import TaskFailed
from tenure.sdk.payload import PayloadError, UserValue
from tenure.sdk.workflow.callee import check_child, check_executed, check_mapped
from tenure.sdk.workflow.child import (
    ChildCall,
    ChildRun,
    ChildTask,
    GroupCall,
    OnCancel,
    OnClose,
    OnError,
    SingleCall,
    task_of_activity,
    task_of_workflow,
)
from tenure.sdk.workflow.definition import Workflow, checked_id
from tenure.sdk.workflow.ending import ContinueAsNew
from tenure.sdk.workflow.guard import NotDurable
from tenure.sdk.workflow.journal import Kind, Made
from tenure.sdk.workflow.loop import is_detached
from tenure.sdk.workflow.outside_signal import ExternalRun, check_run_id, signal_name
from tenure.sdk.workflow.results import Results
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.scope import CallKey, Scope, current_scope
from tenure.sdk.workflow.signal import Signal
from tenure.sdk.workflow.source_line import calling_line
from tenure.sdk.workflow.step import Step, step_function

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("tenure.workflow")


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a body belongs to; the same on each re-run.

    What a schedule has started has its ``schedule_id``, and in ``fire_at`` the instant for which
    it was started: that of the rule, however late it was.
    """

    run_id: str
    type: str
    queue: str
    namespace: str
    external_id: str = ""
    generation: int = 1
    labels: dict[str, str] = {}
    begun_at: datetime
    schedule_id: str = ""
    fire_at: datetime | None = None


class WorkflowContext:
    """The first argument of a workflow: steps, sleeps, signals, and a time that is recorded."""

    def __init__(
        self, run: Run, info: RunInfo, workflow: Workflow[..., Any], scope: Scope | None = None
    ) -> None:
        """Belong to a run or, with ``scope``, to one branch of it."""
        self._run = run
        self._workflow = workflow
        self._scope = scope
        self.info = info
        self.log = WorkflowLog(self)

    # -- Steps

    # An async function is also a function whose result is a coroutine; the first one wins.
    @overload
    def step(
        self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> Step[R]: ...
    @overload
    def step(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Step[R]: ...
    def step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Step[Any]:
        """Run a function here, once: what it returns or raises is recorded.

        It is called when this is called, not when it is awaited, so several can run at a time.
        After three attempts, or those of ``@step(retry=…)``, it raises ``StepFailed``.
        """
        self._run.check_place()
        known = step_function(function)
        scope, line = self._current(), calling_line()
        call = scope.next_call(known.options.name)
        self._run.call(call, Kind.STEP, Made(line))
        step: Step[Any] = Step(self._run, call, line)
        step.args, step.kwargs = args, kwargs
        self._run.start_call(step, known)
        return step

    # -- What ends elsewhere

    @overload
    def execute(
        self, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Step[R]: ...
    @overload
    def execute(
        self, activity: Activity[..., R], /, *args: object, on_cancel: OnCancel, **kwargs: object
    ) -> Step[R]: ...
    def execute(self, activity: Activity[..., Any], /, *args: Any, **kwargs: Any) -> Step[Any]:
        """Run an activity on any worker that serves its queue; its task is made once.

        >>> receipt = await ctx.execute(charge.with_options(priority=1), order)

        When it fails for good, ``TaskFailed`` or a subclass is raised, as for clients. If the call
        is cancelled, ``on_cancel`` decides: "try" asks the activity to end and raises at once,
        "wait" raises when it has ended, "abandon" lets it go on, also beyond the end of the run.
        """
        self._run.check_place()
        check_executed(activity)
        task = task_of_activity(activity)
        on_cancel = _option(task, kwargs, "on_cancel", "try", OnCancel)
        step: Step[Any] = Step(self._run, *self._place(task.name))
        call = SingleCall(self._run, step, task)
        call.on_cancel = on_cancel
        if on_cancel == "abandon":
            call.on_close = "abandon"
        self._start(call, args, kwargs)
        return step

    @overload
    def child(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ChildRun[R]: ...
    @overload
    def child(
        self,
        workflow: Workflow[..., R],
        /,
        *args: object,
        id: str | None,
        on_close: OnClose = "cancel",
        on_cancel: OnCancel = "try",
        **kwargs: object,
    ) -> ChildRun[R]: ...
    @overload
    def child(
        self,
        workflow: Workflow[..., R],
        /,
        *args: object,
        on_close: OnClose,
        on_cancel: OnCancel = "try",
        **kwargs: object,
    ) -> ChildRun[R]: ...
    @overload
    def child(
        self, workflow: Workflow[..., R], /, *args: object, on_cancel: OnCancel, **kwargs: object
    ) -> ChildRun[R]: ...
    def child(self, workflow: Workflow[..., Any], /, *args: Any, **kwargs: Any) -> ChildRun[Any]:
        """Start a run of a workflow that belongs to this one; await it for its result.

        >>> reports = await asyncio.gather(*(ctx.child(close_shop, shop) for shop in shops))

        It raises ``ChildFailed`` if the child ended without success. ``id`` is an id of your own,
        which no other live run has. ``on_close`` says what happens to the child when this run ends
        first: "cancel", "terminate" or "abandon"; and ``on_cancel`` what happens when the call is
        cancelled: "try", "wait" or "abandon", as for ``execute``. A parameter of the workflow with
        one of these names gets the value instead.
        """
        self._run.check_place()
        check_child(workflow)
        task = task_of_workflow(workflow)
        on_cancel = _option(task, kwargs, "on_cancel", "try", OnCancel)
        on_close = _option(task, kwargs, "on_close", "cancel", OnClose)
        own_id = None if "id" in task.signature.names else kwargs.pop("id", None)
        external_id = workflow.options.id if own_id is None else checked_id(own_id)
        place = self._place(f"child:{task.name}")
        step: ChildRun[Any] = ChildRun(self._run, *place, self._send)
        call = SingleCall(self._run, step, task)
        call.on_cancel, call.on_close, call.external_id = on_cancel, on_close, external_id
        self._start(call, args, kwargs)
        return step

    @overload
    def map(
        self,
        activity: Activity[Concatenate[T, ...], R],
        items: Iterable[T],
        *,
        on_error: Literal["fail"] = "fail",
        on_cancel: OnCancel = "try",
    ) -> Step[Results[R]]: ...
    @overload
    def map(
        self,
        activity: Activity[Concatenate[T, ...], R],
        items: Iterable[T],
        *,
        on_error: Literal["collect"],
        on_cancel: OnCancel = "try",
    ) -> Step[Results[R | TaskFailed]]: ...
    def map(
        self,
        activity: Activity[..., Any],
        items: Iterable[Any],
        *,
        on_error: OnError = "fail",
        on_cancel: OnCancel = "try",
    ) -> Step[Results[Any]]:
        """Run an activity for each of up to 100,000 items, as one step of this run.

        >>> done = await ctx.map(resize, images, on_error="collect")
        >>> return await ctx.step(summarise, done)

        With "fail" the first item that fails ends it, and its failure is raised; with "collect" it
        waits for all, and the value of an item that failed is its ``TaskFailed``.
        """
        self._run.check_place()
        check_mapped(activity, items)
        _check_option("on_error", on_error, OnError)
        _check_option("on_cancel", on_cancel, OnCancel)
        task = task_of_activity(activity)
        # An iterator without an end would fill the memory of the worker, and stop its other runs.
        given = list(itertools.islice(items, GROUP_ITEMS_MAX + 1))
        if len(given) > GROUP_ITEMS_MAX:
            message = f"map takes up to {GROUP_ITEMS_MAX:,} items, and these are more: split them"
            raise ValueError(message)
        step: Step[Any] = Step(self._run, *self._place(f"map:{task.name}"))
        call = GroupCall(self._run, step, task, given)
        call.fails_fast = on_error == "fail"
        call.on_cancel = on_cancel
        if on_cancel == "abandon":
            call.on_close = "abandon"
        kind = Kind.GROUP if given else Kind.STEP
        made = Made(step.line, task.name, call.total)
        known = self._run.call(step.call_key, kind, made)
        if known is None:
            call.check_items(0)
        self._run.start_child(call, known)
        return step

    def external(self, run_id: str) -> ExternalRun:
        """Return another run, by its id or by ``external:`` and the id that its user chose.

        >>> await ctx.external("external:order-42").signal(paid, receipt)
        """
        self._run.check_place()
        return ExternalRun(check_run_id(run_id), self._send)

    def continue_as_new(self, *args: object, **kwargs: object) -> NoReturn:
        """Begin anew with other arguments and an empty journal: for loops without an end.

        >>> ctx.continue_as_new(shipment, last)

        The run keeps its id, its handle and the signals that nobody has taken. The call raises an
        exception that ends the body; let it pass.
        """
        self._run.check_place()
        signature = self._workflow.signature
        payload = signature.encode(signature.bind(args, kwargs))
        if len(payload.data) > PAYLOAD_BYTES_MAX:
            message = f"The arguments have {len(payload.data):,} bytes, and {PAYLOAD_BYTES_MAX:,} "
            raise PayloadError(f"{message}are allowed.")
        raise ContinueAsNew(self._run.converter.seal(payload))

    def patched(self, id: str) -> bool:
        """Tell whether a run takes new code: it does if it has not come past this call yet.

        >>> if ctx.patched("fraud-check"):
        ...     await ctx.step(check_fraud, order)

        The answer is the same on each re-run. When no run needs the old code any more, delete the
        call and the old code.
        """
        self._run.check_place()
        try:
            check.name(id, "id")
        except InvalidArgument as error:
            raise ValueError(f"patched: {error.message}") from None
        return self._run.patched(id, calling_line())

    # -- Time and chance

    def now(self) -> datetime:
        """Return the time of the server when the body last heard from it."""
        return datetime.fromtimestamp(self._run.now_ms / 1_000, UTC)

    async def sleep(self, duration: Duration) -> None:
        """Wait; the run uses no worker until then. The same as ``asyncio.sleep``."""
        self._run.check_place()
        delay_ms = 0 if duration in (0, "0s") else duration_ms(duration, "sleep")
        await asyncio.sleep(delay_ms / 1_000)

    async def sleep_until(self, instant: datetime) -> None:
        """Wait until an instant, which needs a time zone; one that is over does not wait."""
        self._run.check_place()
        if instant.tzinfo is None:
            raise ValueError("sleep_until needs an instant with a time zone, such as UTC")
        await asyncio.sleep(max(0.0, instant.timestamp() - self._run.now_ms / 1_000))

    def random(self) -> random.Random:
        """Return a source of random numbers that are the same on each re-run."""
        scope = self._current()
        known = self._run.randoms.get(scope.path)
        if known is None:
            known = self._run.randoms[scope.path] = scope.random()
        return known

    def uuid4(self) -> uuid.UUID:
        """Return a random UUID that is the same on each re-run."""
        return uuid.UUID(int=self.random().getrandbits(128), version=4)

    # -- Signals

    # The timeout is recorded, so it is ours and not that of whoever calls.
    async def wait_signal(self, sig: Signal[T], timeout: Duration | None = None) -> T:  # noqa: ASYNC109
        """Wait for the next signal of a kind; raise ``TimeoutError`` if none comes in time."""
        self._run.check_place()
        if timeout is None:
            entry = await self._run.signals.get(sig.name, self._run.now_ms)
        else:
            async with asyncio.timeout(duration_ms(timeout, "timeout") / 1_000):
                entry = await self._run.signals.get(sig.name, self._run.now_ms)
        value: T = self._run.decode(entry, sig.type)
        return value

    async def signals(self, sig: Signal[T]) -> AsyncIterator[T]:
        """Iterate over signals of a kind as they come; the iteration never ends by itself."""
        while True:
            yield await self.wait_signal(sig)

    def unread(self, sig: Signal[Any]) -> int:
        """Return how many signals of a kind have come that nobody has taken."""
        self._run.check_place()
        return self._run.signals.count(sig.name)

    # -- The rest

    def branch(self, name: str) -> WorkflowContext:
        """Return a context whose calls have keys of their own, for sets that change.

        >>> await asyncio.gather(*(ship(ctx.branch(order.id), order) for order in orders))
        """
        self._run.check_place()
        scope = self._current().branch(name)
        return WorkflowContext(self._run, self.info, self._workflow, scope)

    def set_state(self, value: object) -> None:
        """Publish a value of up to 64 KiB that clients can read, also while no worker is there."""
        self._run.check_place()
        state = self._run.converter.encode(value)
        if len(state.data) > RUN_STATE_BYTES_MAX:
            message = f"The state has {len(state.data):,} bytes, and {RUN_STATE_BYTES_MAX:,} are "
            raise PayloadError(f"{message}allowed.")
        self._run.publish(state=state)

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """Show how far the run is."""
        self._run.check_place()
        if percent is not None:
            check.number(percent, "percent", 0, 100)
        if message is not None:
            check.text(message, "message", bytes_max=ERROR_MESSAGE_BYTES_MAX)
        self._run.publish(percent=percent, message=message)

    def _place(self, name: str) -> tuple[CallKey, str]:
        """Return the key of a call that is made now, and its line."""
        return self._current().next_call(name), calling_line()

    def _start(self, call: SingleCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        task, step = call.task, call.step
        known = self._run.call(step.call_key, Kind.CHILD, Made(step.line, task.name))
        # What is recorded has been checked.
        if known is None:
            call.payload = task.input_of(args, kwargs)
        else:
            # A check of code compares them with what was sent.
            step.args, step.kwargs = args, kwargs
        self._run.start_child(call, known)

    def _send(
        self, run_id: str, sig: Signal[Any] | str, value: object, follows: ChildCall | None = None
    ) -> Step[None]:
        """Send a signal to another run; it is a step."""
        self._run.check_place()
        call, line = self._place(f"signal:{signal_name(sig)}")
        self._run.call(call, Kind.STEP, Made(line))
        step: Step[None] = Step(self._run, call, line)
        step.follows = follows or self._run.children.coming(run_id)
        self._run.send_signal(step, run_id, sig, value)
        return step

    def _current(self) -> Scope:
        if self._scope is not None:
            return self._scope
        scope = current_scope.get()
        if is_detached(scope):
            message = "runs when an async generator is collected, at no certain place: use "
            raise NotDurable(f"{calling_line()} {message}contextlib.aclosing(…) around it")
        return scope


def _option(
    task: ChildTask, kwargs: dict[str, Any], name: str, default: str, choices: UserValue
) -> Any:  # noqa: ANN401 (one of the choices)
    """Take an option out of the arguments of a call, unless the callee has such a parameter."""
    if name not in kwargs or name in task.signature.names:
        return default
    return _check_option(name, kwargs.pop(name), choices)


def _check_option(name: str, value: object, choices: UserValue) -> object:
    known = get_args(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return value


class WorkflowLog:
    """``ctx.log``: lines that are logged and recorded once, not on re-runs."""

    def __init__(self, context: WorkflowContext) -> None:
        """Log for a context."""
        self._context = context

    def debug(self, message: str, *args: object) -> None:
        """Log at level DEBUG."""
        self._log(logging.DEBUG, message, args)

    def info(self, message: str, *args: object) -> None:
        """Log at level INFO."""
        self._log(logging.INFO, message, args)

    def warning(self, message: str, *args: object) -> None:
        """Log at level WARNING."""
        self._log(logging.WARNING, message, args)

    def error(self, message: str, *args: object) -> None:
        """Log at level ERROR."""
        self._log(logging.ERROR, message, args)

    def _log(self, level: int, message: str, args: tuple[object, ...]) -> None:
        context = self._context
        run = context._run  # noqa: SLF001 (one thing in two classes)
        run.check_place()
        key = context._current().next_note("@log")  # noqa: SLF001 (the same)
        text = message % args if args else message
        if run.note(key, text, logging.getLevelName(level)):
            _log.log(level, "%s %s: %s", context.info.type, context.info.run_id, text)
