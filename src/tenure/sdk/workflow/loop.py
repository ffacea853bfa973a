"""The event loop of one run: a ready queue, durable timers, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import FrameType
from typing import Any, Final, Protocol, TypeVar

from tenure.sdk.workflow import guard
from tenure.sdk.workflow.guard import Guard, NotDurable
from tenure.sdk.workflow.scope import Scope, current_scope
from tenure.sdk.workflow.source_line import calling_line, waiting_line

R = TypeVar("R")

Passed = Any
"""What asyncio hands through a loop: nobody here looks at it."""

_log = logging.getLogger("tenure.workflow")
_SLEEP_CODE: Final = asyncio.sleep.__code__
# Between two looks at the clock.
_HANDLES: Final = 64
_DETACHED: Final = "(ended by the garbage collector)"
_WHAT: Final = {
    "create_connection": "a socket",
    "create_datagram_endpoint": "a socket",
    "create_server": "a socket",
    "create_unix_connection": "a socket",
    "create_unix_server": "a socket",
    "getaddrinfo": "the network",
    "getnameinfo": "the network",
    "run_in_executor": "a thread",
    "call_soon_threadsafe": "another thread",
    "subprocess_exec": "a process",
    "subprocess_shell": "a process",
    "add_signal_handler": "a signal of the process",
}


class TimerKeeper(Protocol):
    """Who keeps the durable timers of a loop, and knows its time."""

    @property
    def now_ms(self) -> int:
        """The time of the body."""
        ...

    def arm(self, timer: DurableTimer) -> None:
        """Have a timer fire at its time."""
        ...

    def disarm(self, timer: DurableTimer) -> None:
        """Forget a timer that was cancelled."""
        ...


class DurableTimer(asyncio.TimerHandle):
    """A callback at an instant of the server; it fires when that is recorded."""

    __slots__ = ("armed_at_ms", "fire_at_ms", "index", "is_sleep", "key", "line")

    def __init__(
        self,
        fire_at_ms: int,
        callback: tuple[Callable[..., object], tuple[Any, ...]],
        **rest: Passed,
    ) -> None:
        super().__init__(fire_at_ms / 1_000, *callback, **rest)
        self.fire_at_ms = fire_at_ms
        self.is_sleep = False
        self.key = ""
        self.index = 0
        self.line = ""
        self.armed_at_ms = 0


class RunTask(asyncio.Task[Any]):
    """A task of a body; sets of them have the same order on each re-run."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **rest: Passed) -> None:
        # The base class puts itself into a set.
        self._number = number
        super().__init__(coroutine, **rest)

    def __hash__(self) -> int:
        return self._number

    @property
    def line(self) -> str:
        """The line of user code at which it waits."""
        coroutine = self.get_coro()
        assert isinstance(coroutine, _BodyCoroutine)
        return "its end" if self.done() else coroutine.line


class RunFuture(asyncio.Future[R]):
    """A future of a body; sets of them have the same order on each re-run."""

    def __init__(self, number: int, loop: RunLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


def _refuse(name: str) -> Callable[..., object]:
    def refuse(*_args: object, **_kwargs: object) -> object:
        raise guard.refusal(f"{_WHAT.get(name, 'the event loop')} (loop.{name})")

    return refuse


# Whatever a loop can do is refused, but for what ``RunLoop`` does.
_RefusingLoop: Any = type(
    "_RefusingLoop",
    (asyncio.AbstractEventLoop,),
    {name: _refuse(name) for name in dir(asyncio.AbstractEventLoop) if not name.startswith("_")},
)


class RunLoop(_RefusingLoop):  # type: ignore[misc]  # (made above)
    """Runs one body until it is quiescent; entered from a plain callback of the user's loop."""

    def __init__(self, timers: TimerKeeper, *, number: int, guard_mode: Guard = "refuse") -> None:
        """Begin to number tasks and futures at ``number``, which differs from run to run."""
        self._timers = timers
        self._next_number = number
        self.guard_mode = guard_mode
        self._ready: deque[asyncio.Handle] = deque()
        self.tasks: dict[int, RunTask] = {}
        # After the body was put aside, nobody is interested in what it still raises.
        self.is_silent = False
        # While a body computes on a thread of its own, nothing is quiescent.
        self.is_away = False
        guard.install()

    def run_quiet(self, until_s: float) -> bool:
        """Run what is ready; True when nothing is, False when the time was over before."""
        ready = self._ready
        if not ready:
            return not self.is_away
        before = events._get_running_loop()  # noqa: SLF001 (documented for makers of loops)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=_ignore, finalizer=self._end_generator)
        events._set_running_loop(self)  # noqa: SLF001 (the same)
        try:
            with guard.guarded(self.guard_mode):
                while ready:
                    for _ in range(min(len(ready), _HANDLES)):
                        handle = ready.popleft()
                        if not handle.cancelled():
                            _run(handle)
                    if ready and time.monotonic() >= until_s:
                        return False
                return not self.is_away
        finally:
            events._set_running_loop(before)  # noqa: SLF001 (the same)
            sys.set_asyncgen_hooks(*hooks)

    def number(self) -> int:
        """Return the number of the next task or future."""
        self._next_number += 1
        return self._next_number

    # -- What a body may use

    def time(self) -> float:
        """Return the time of the body in seconds."""
        return self._timers.now_ms / 1_000

    def call_soon(
        self, callback: Callable[..., object], *args: Passed, context: Context | None = None
    ) -> asyncio.Handle:
        """Call when the loop comes to it."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Passed,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call after a while, also in another process."""
        timer = self._timer(self.time() + delay, callback, args, context)
        timer.is_sleep = sys._getframe(1).f_code is _SLEEP_CODE  # noqa: SLF001 (documented)
        self._timers.arm(timer)
        return timer

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Passed,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a time of this loop, also in another process."""
        timer = self._timer(when, callback, args, context)
        self._timers.arm(timer)
        return timer

    def fire(self, timer: DurableTimer) -> None:
        """Let a timer have its effect: it was recorded that it fired."""
        self._ready.append(timer)

    def create_future(self) -> RunFuture[Any]:
        """Return a future of this loop."""
        return RunFuture(self.number(), self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: object = None,
        context: Context | None = None,
        **rest: Passed,
    ) -> RunTask:
        """Start a task; it is a branch of the one that starts it."""
        if not isinstance(coro, Coroutine):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        scope = self._scope_of_task()
        context = copy_context() if context is None else context.copy()
        context.run(current_scope.set, scope)
        return self.start_task(coro, context, name=None if name is None else str(name), **rest)

    def start_task(
        self, coroutine: Coroutine[Any, Any, Any], context: Context, **rest: Passed
    ) -> RunTask:
        """Start a task in a context that has its scope."""
        number = self.number()
        watched = _BodyCoroutine(coroutine, self, number)
        task = RunTask(number, watched, loop=self, context=context, **rest)
        self.tasks[number] = task
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what nobody has taken."""
        if self.is_silent:
            return
        error = context.get("exception")
        _log.error("%s", context.get("message", "an error in a workflow"), exc_info=error)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what nobody has taken."""
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        """Return that this loop has no debug mode."""
        return False

    def is_running(self) -> bool:
        """Tell whether the body is running now."""
        return events._get_running_loop() is self  # noqa: SLF001 (documented)

    def is_closed(self) -> bool:
        """Return that this loop is never closed."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, DurableTimer)
        self._timers.disarm(handle)

    # -- Inside

    def _timer(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> DurableTimer:
        fire_at_ms = max(round(when * 1_000), self._timers.now_ms)
        return DurableTimer(fire_at_ms, (callback, args), loop=self, context=context)

    def _scope_of_task(self) -> Scope:
        """Return the scope of a task that is being created; refuse what has no stable order."""
        scope = current_scope.get()
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 (a documented name)
        while frame is not None and frame.f_globals.get("__name__", "").startswith("asyncio."):
            name = frame.f_code.co_name
            if name == "shield":
                return scope
            if name == "wait_for":
                message = "passes a coroutine to asyncio.wait_for: write async with "
                raise NotDurable(f"{calling_line()} {message}asyncio.timeout(…) around its await")
            if name == "as_completed" or "AsCompleted" in frame.f_code.co_qualname:
                message = "passes coroutines to asyncio.as_completed, which gives them no order: "
                raise NotDurable(f"{calling_line()} {message}pass steps, or tasks of create_task")
            frame = frame.f_back
        return scope.child()

    def _end_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that was left open; when that happens is up to the interpreter."""
        context = copy_context()
        context.run(current_scope.set, Scope(_DETACHED, ""))
        self.start_task(_closing(generator), context)


def is_detached(scope: Scope) -> bool:
    """Tell whether code runs because the garbage collector found it: no call has a place there."""
    return scope.path.startswith(_DETACHED)


async def _closing(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()


def _ignore(_generator: AsyncGenerator[Any, Any]) -> None:
    """Do not tell the user's loop of a generator in a body."""


def _run(handle: asyncio.Handle) -> None:
    try:
        handle._run()  # noqa: SLF001 (what a loop does with it)
    except (SystemExit, KeyboardInterrupt):
        # It is the outcome of its task as well, and there it counts.
        return


class _BodyCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine of a body that refuses to wait for anything of another loop."""

    __slots__ = ("_coroutine", "_loop", "_number")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], loop: RunLoop, number: int) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._number = number

    @property
    def line(self) -> str:
        """The line at which the code waits."""
        own = getattr(self._coroutine, "line", None)
        return own if isinstance(own, str) else waiting_line(self._coroutine)

    def __await__(self) -> Generator[Any, Any, Any]:
        raise RuntimeError("only a task runs the coroutine of a task")

    def send(self, value: Passed) -> Passed:
        return self._advance(self._coroutine.send, value)

    def throw(self, *error: Passed) -> Passed:
        return self._advance(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def _advance(self, step: Callable[..., Any], *value: Passed) -> Passed:
        try:
            awaited = step(*value)
            while awaited is not None and awaited.get_loop() is not self._loop:
                awaited._asyncio_future_blocking = False  # noqa: SLF001 (the protocol of futures)
                line = waiting_line(self._coroutine)
                error = guard.refusal("a future of another event loop", line)
                awaited = self._coroutine.throw(error)
        except BaseException:
            self._loop.tasks.pop(self._number, None)
            raise
        return awaited
