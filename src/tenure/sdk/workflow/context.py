"""``WorkflowContext``: what the body of a workflow can do."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar, overload

import msgspec

from tenure.core import check
from tenure.core.limits import ERROR_MESSAGE_BYTES_MAX, RUN_STATE_BYTES_MAX
from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.payload import PayloadError
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.guard import NotDurable
from tenure.sdk.workflow.journal import Kind, Made
from tenure.sdk.workflow.loop import is_detached
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.scope import Scope, current_scope
from tenure.sdk.workflow.signal import Signal
from tenure.sdk.workflow.source_line import calling_line
from tenure.sdk.workflow.step import Step, step_function

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("tenure.workflow")


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a body belongs to; the same on each re-run."""

    run_id: str
    type: str
    queue: str
    namespace: str
    external_id: str = ""
    generation: int = 1
    labels: dict[str, str] = {}
    begun_at: datetime


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
            entry = await self._run.signals.get(sig.name)
        else:
            async with asyncio.timeout(duration_ms(timeout, "timeout") / 1_000):
                entry = await self._run.signals.get(sig.name)
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

    def _current(self) -> Scope:
        if self._scope is not None:
            return self._scope
        scope = current_scope.get()
        if is_detached(scope):
            message = "runs when an async generator is collected, at no certain place: use "
            raise NotDurable(f"{calling_line()} {message}contextlib.aclosing(…) around it")
        return scope


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
