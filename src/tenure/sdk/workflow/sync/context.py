"""``SyncWorkflowContext``: what the body of a workflow can do that is a plain function."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    ParamSpec,
    TypeVar,
    get_args,
    overload,
)

from tenure.core.limits import GROUP_ITEMS_MAX
from tenure.sdk.activity.definition import Activity
from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.failure import TaskFailed
from tenure.sdk.workflow.child import OnCancel, OnClose, OnError
from tenure.sdk.workflow.context import WorkflowContext, WorkflowLog
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.signal import Signal
from tenure.sdk.workflow.sync.body_thread import BodyThread
from tenure.sdk.workflow.sync.results import SyncResults
from tenure.sdk.workflow.sync.step import SyncChildRun, SyncExternalRun, SyncStep, step_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound=SyncStep[Any])
ReturnWhen = Literal["all", "first"]
"""Whether ``ctx.wait`` waits for all of the calls, or for the first that ends."""


class SyncWorkflowContext:
    """The first argument of a workflow that is a plain function: each call waits for its end.

    ``begin`` makes a call that does not, so that several run beside each other.
    """

    def __init__(self, context: WorkflowContext, thread: BodyThread) -> None:
        """Belong to the run or the branch of a context."""
        self._context = context
        self._thread = thread
        self.info = context.info
        self.log = SyncWorkflowLog(context.log, thread)

    # -- Calls

    # An async function is also a function whose result is a coroutine; the first one wins.
    @overload
    def step(
        self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def step(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function in this worker, once: what it returns or raises is recorded.

        After three attempts, or those of ``@step(retry=…)``, it raises ``StepFailed``.
        """
        return self._thread.run(lambda: self._context.step(function, *args, **kwargs))

    @overload
    def execute(self, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def execute(
        self, activity: Activity[..., R], /, *args: object, on_cancel: OnCancel, **kwargs: object
    ) -> R: ...
    def execute(self, activity: Activity[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run an activity on any worker that serves its queue; its task is made once.

        >>> receipt = ctx.execute(charge.with_options(priority=1), order)

        When it fails for good, ``TaskFailed`` or a subclass is raised, as for clients. If the run
        is cancelled, ``on_cancel`` decides: "try" asks the activity to end and raises at once,
        "wait" raises when it has ended, "abandon" lets it go on, also beyond the end of the run.
        """
        return self._thread.run(lambda: self._context.execute(activity, *args, **kwargs))

    @overload
    def child(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
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
    ) -> R: ...
    @overload
    def child(
        self,
        workflow: Workflow[..., R],
        /,
        *args: object,
        on_close: OnClose,
        on_cancel: OnCancel = "try",
        **kwargs: object,
    ) -> R: ...
    @overload
    def child(
        self, workflow: Workflow[..., R], /, *args: object, on_cancel: OnCancel, **kwargs: object
    ) -> R: ...
    def child(self, workflow: Workflow[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Start a run of a workflow that belongs to this one, and wait for its result.

        It raises ``ChildFailed`` if the child ended without success. ``id`` is an id of your own,
        which no other live run has. ``on_close`` says what happens to the child when this run ends
        first: "cancel", "terminate" or "abandon"; and ``on_cancel`` what happens when the run is
        cancelled: "try", "wait" or "abandon", as for ``execute``. A parameter of the workflow with
        one of these names gets the value instead.
        """
        return self._thread.run(lambda: self._context.child(workflow, *args, **kwargs))

    @overload
    def map(
        self,
        activity: Activity[Concatenate[T, ...], R],
        items: Iterable[T],
        *,
        on_error: Literal["fail"] = "fail",
        on_cancel: OnCancel = "try",
    ) -> SyncResults[R]: ...
    @overload
    def map(
        self,
        activity: Activity[Concatenate[T, ...], R],
        items: Iterable[T],
        *,
        on_error: Literal["collect"],
        on_cancel: OnCancel = "try",
    ) -> SyncResults[R | TaskFailed]: ...
    def map(
        self,
        activity: Activity[..., Any],
        items: Iterable[Any],
        *,
        on_error: OnError = "fail",
        on_cancel: OnCancel = "try",
    ) -> SyncResults[Any]:
        """Run an activity for each of up to 100,000 items, as one step of this run.

        >>> done = ctx.map(resize, images, on_error="collect")
        >>> return ctx.step(summarise, done)

        With "fail" the first item that fails ends it, and its failure is raised; with "collect" it
        waits for all, and the value of an item that failed is its ``TaskFailed``.
        """
        if isinstance(items, Iterable):
            # An iterator is code of the body, and belongs to its thread. One too many is refused.
            items = list(itertools.islice(items, GROUP_ITEMS_MAX + 1))
        options: Any = {"on_error": on_error, "on_cancel": on_cancel}
        done = self._thread.run(lambda: self._context.map(activity, items, **options))
        return SyncResults(self._thread, done)

    # -- Calls beside each other

    @overload
    def begin(self, call: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncStep[R]: ...
    @overload
    def begin(
        self, call: Activity[..., R], /, *args: object, on_cancel: OnCancel, **kwargs: object
    ) -> SyncStep[R]: ...
    @overload
    def begin(
        self, call: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncChildRun[R]: ...
    @overload
    def begin(
        self,
        call: Workflow[..., R],
        /,
        *args: object,
        id: str | None,
        on_close: OnClose = "cancel",
        on_cancel: OnCancel = "try",
        **kwargs: object,
    ) -> SyncChildRun[R]: ...
    @overload
    def begin(
        self,
        call: Workflow[..., R],
        /,
        *args: object,
        on_close: OnClose,
        on_cancel: OnCancel = "try",
        **kwargs: object,
    ) -> SyncChildRun[R]: ...
    @overload
    def begin(
        self, call: Workflow[..., R], /, *args: object, on_cancel: OnCancel, **kwargs: object
    ) -> SyncChildRun[R]: ...
    @overload
    def begin(
        self, call: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncStep[R]: ...
    @overload
    def begin(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncStep[R]: ...
    def begin(self, call: Any, /, *args: Any, **kwargs: Any) -> SyncStep[Any]:
        """Begin a call and return its handle at once; ``handle.result()`` waits for it.

        >>> flight, hotel = ctx.begin(book_flight, trip), ctx.begin(book_hotel, trip)
        >>> return Booking(*ctx.gather(flight, hotel))

        An activity is called as by ``execute``, a workflow as by ``child``, and any other function
        as by ``step``.
        """
        context = self._context
        if isinstance(call, Workflow):
            run = self._thread.call(lambda: context.child(call, *args, **kwargs))
            return SyncChildRun(self._thread, run)
        make = context.execute if isinstance(call, Activity) else context.step
        return SyncStep(self._thread, self._thread.call(lambda: make(call, *args, **kwargs)))

    @overload
    def gather(
        self, *handles: SyncStep[R], return_exceptions: Literal[False] = False
    ) -> list[R]: ...
    @overload
    def gather(self, *handles: SyncStep[R], return_exceptions: bool) -> list[R | BaseException]: ...
    def gather(self, *handles: SyncStep[Any], return_exceptions: bool = False) -> list[Any]:
        """Wait for all of some calls, and return their results in the order of the handles.

        The first failure is raised, and the other calls go on; ``return_exceptions`` returns the
        failures among the results.
        """
        steps = [step_of(each) for each in handles]
        return self._thread.run(lambda: asyncio.gather(*steps, return_exceptions=return_exceptions))

    def wait(
        self,
        handles: Iterable[S],
        *,
        timeout: Duration | None = None,
        return_when: ReturnWhen = "all",
    ) -> Waited[S]:
        """Wait until all of some calls, or the first of them, have ended or failed.

        >>> done, pending = ctx.wait([cheap, fast], return_when="first", timeout="1m")
        >>> for call in pending:
        ...     call.cancel()

        Both lists have the order of ``handles``. After the timeout some are pending; nothing is
        raised and nothing cancelled.
        """
        if return_when not in get_args(ReturnWhen):
            known = ", ".join(get_args(ReturnWhen))
            raise ValueError(f"return_when must be one of {known}, not {return_when!r}")
        given = list(handles)
        steps = [step_of(each) for each in given]
        timeout_s = None if timeout is None else duration_ms(timeout, "timeout") / 1_000
        when = asyncio.ALL_COMPLETED if return_when == "all" else asyncio.FIRST_COMPLETED
        if steps:
            self._thread.run(lambda: asyncio.wait(steps, timeout=timeout_s, return_when=when))
        done = [each for each in given if each.done()]
        return Waited(done, [each for each in given if not each.done()])

    # -- Time and chance

    def now(self) -> datetime:
        """Return the time of the server when the body last heard from it."""
        self._thread.check_place()
        return self._context.now()

    def sleep(self, duration: Duration) -> None:
        """Wait; the run uses no worker until then."""
        self._thread.run(lambda: self._context.sleep(duration))

    def sleep_until(self, instant: datetime) -> None:
        """Wait until an instant, which needs a time zone; one that is over does not wait."""
        self._thread.run(lambda: self._context.sleep_until(instant))

    def random(self) -> random.Random:
        """Return a source of random numbers that are the same on each re-run."""
        self._thread.check_place()
        return self._context.random()

    def uuid4(self) -> uuid.UUID:
        """Return a random UUID that is the same on each re-run."""
        self._thread.check_place()
        return self._context.uuid4()

    # -- Signals

    def wait_signal(self, sig: Signal[T], timeout: Duration | None = None) -> T:
        """Wait for the next signal of a kind; raise ``TimeoutError`` if none comes in time."""
        return self._thread.run(lambda: self._context.wait_signal(sig, timeout))

    def signals(self, sig: Signal[T]) -> Iterator[T]:
        """Iterate over signals of a kind as they come; the iteration never ends by itself."""
        while True:
            yield self.wait_signal(sig)

    def unread(self, sig: Signal[Any]) -> int:
        """Return how many signals of a kind have come that nobody has taken."""
        return self._thread.call(lambda: self._context.unread(sig))

    def external(self, run_id: str) -> SyncExternalRun:
        """Return another run, by its id or by ``external:`` and the id that its user chose.

        >>> ctx.external("external:order-42").signal(paid, receipt)
        """
        run = self._thread.call(lambda: self._context.external(run_id))
        return SyncExternalRun(self._thread, run)

    # -- The rest

    def branch(self, name: str) -> SyncWorkflowContext:
        """Return a context whose calls have keys of their own, for sets that change.

        >>> for order in orders:
        ...     ship(ctx.branch(order.id), order)
        """
        branch = self._thread.call(lambda: self._context.branch(name))
        return SyncWorkflowContext(branch, self._thread)

    def patched(self, id: str) -> bool:
        """Tell whether a run takes new code: it does if it has not come past this call yet.

        >>> if ctx.patched("fraud-check"):
        ...     ctx.step(check_fraud, order)

        The answer is the same on each re-run. When no run needs the old code any more, delete the
        call and the old code.
        """
        return self._thread.call(lambda: self._context.patched(id))

    def set_state(self, value: object) -> None:
        """Publish a value of up to 64 KiB that clients can read, also while no worker is there."""
        self._thread.call(lambda: self._context.set_state(value))

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """Show how far the run is."""
        self._thread.call(lambda: self._context.progress(percent, message))

    def continue_as_new(self, *args: object, **kwargs: object) -> NoReturn:
        """Begin anew with other arguments and an empty journal: for loops without an end.

        >>> ctx.continue_as_new(shipment, last)

        The run keeps its id, its handle and the signals that nobody has taken. The call raises an
        exception that ends the body; let it pass.
        """
        self._thread.call(lambda: self._context.continue_as_new(*args, **kwargs))


class Waited(NamedTuple, Generic[S]):
    """What ``ctx.wait`` returns: the calls that have ended, and those that go on."""

    done: list[S]
    pending: list[S]


class SyncWorkflowLog:
    """``ctx.log``: lines that are logged and recorded once, not on re-runs."""

    def __init__(self, log: WorkflowLog, thread: BodyThread) -> None:
        """Log for a context."""
        self._log = log
        self._thread = thread

    def debug(self, message: str, *args: object) -> None:
        """Log at level DEBUG."""
        self._thread.call(lambda: self._log.debug(message, *args))

    def info(self, message: str, *args: object) -> None:
        """Log at level INFO."""
        self._thread.call(lambda: self._log.info(message, *args))

    def warning(self, message: str, *args: object) -> None:
        """Log at level WARNING."""
        self._thread.call(lambda: self._log.warning(message, *args))

    def error(self, message: str, *args: object) -> None:
        """Log at level ERROR."""
        self._thread.call(lambda: self._log.error(message, *args))
