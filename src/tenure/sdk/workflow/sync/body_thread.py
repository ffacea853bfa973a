"""Runs a plain body on a thread of its own, which looks like a coroutine to its run."""

from __future__ import annotations

import asyncio
import functools
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

from tenure.sdk.payload import UserValue
from tenure.sdk.workflow import guard
from tenure.sdk.workflow.source_line import acting_for, calling_line, line_of

if TYPE_CHECKING:
    from tenure.sdk.workflow.run import Run

T = TypeVar("T")

# So long a body may make calls that wait for nothing; then others have their turn.
_TURN_S: Final = 0.005
# A body that catches what ends it so often is stopped for good where it is.
_RAISED_MAX: Final = 1_000


class ThreadPort(Protocol):
    """What the thread of a body asks of the worker that holds its run."""

    @property
    def patience_s(self) -> float | None:
        """How long the user's loop waits for a body that computes; None: until it waits itself.

        A body that computes for longer goes on beside the loop.
        """
        ...

    def post(self, callback: Callable[[], None]) -> None:
        """Call on the user's loop; from any thread."""
        ...


class Suspended(BaseException):
    """Raised by each call of a plain body that was put aside: nothing it does counts any more."""


class _Wish(NamedTuple):
    """What a body wants its run to do, and the line at which it waits for that."""

    act: Callable[[], Any]
    is_awaited: bool
    frame: FrameType


class _Outcome(NamedTuple):
    """What was returned or raised: by the run to a body, or by a body at its end."""

    value: UserValue = None
    error: BaseException | None = None


class BodyThread:
    """The thread of one body; ``begin`` starts it.

    The methods for the body are called on the thread, all others on the user's loop.
    """

    def __init__(self, run: Run, port: ThreadPort) -> None:
        """Prepare a thread for the body of a run."""
        self._run = run
        self._port = port
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._wishes: queue.SimpleQueue[_Wish | _Outcome] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        # Set while the body computes and the loop has not waited for it.
        self._away: asyncio.Future[None] | None = None
        self._away_since_s = 0.0
        self._is_suspended = False
        self._raised_count = 0

    # -- The run's side

    def begin(self, function: Callable[[], Any], context: Context) -> Coroutine[Any, Any, Any]:
        """Start the thread and return the body as a coroutine of the run."""
        name = f"tenure-body-{self._run.identity.run_id}"
        arguments = (self._live, function)
        self._thread = threading.Thread(
            target=context.copy().run, args=arguments, name=name, daemon=True
        )
        self._thread.start()
        return _BodyOnThread(self, self._follow())

    @property
    def line(self) -> str:
        """The line of the body, which waits there or computes."""
        # The number of a thread that has ended may be that of another one.
        frames = sys._current_frames() if self.is_alive else {}  # noqa: SLF001 (documented)
        frame = frames.get(self.ident)
        return "its end" if frame is None else line_of(frame)

    @property
    def ident(self) -> int:
        """The number of the thread, as Python has it; 0 before it has begun."""
        return 0 if self._thread is None else self._thread.ident or 0

    @property
    def is_alive(self) -> bool:
        """Whether the thread has begun and not ended."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def away_s(self) -> float:
        """For how long the body has been computing; 0 while it waits for its run."""
        return time.monotonic() - self._away_since_s if self._away is not None else 0.0

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; False if it has not ended by then."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_alive

    def suspend(self) -> None:
        """Let the body unwind, which nobody waits for."""
        with self._lock:
            if self._is_suspended:
                return
            self._is_suspended = True
        self._answers.put(_Outcome())

    async def _follow(self) -> UserValue:
        """Do what the body wants, one thing after the other, until it ends."""
        wish = await self._turn(_Outcome())
        until_s = time.monotonic() + _TURN_S
        while isinstance(wish, _Wish):
            answer = await self._answer(wish)
            if time.monotonic() >= until_s:
                # Calls that wait for nothing would keep the user's loop for themselves.
                await asyncio.sleep(0)
                until_s = time.monotonic() + _TURN_S
            wish = await self._turn(answer)
        if wish.error is not None:
            raise wish.error
        return wish.value

    async def _turn(self, answer: _Outcome) -> _Wish | _Outcome:
        """Give the body its turn, until it wants something or has ended."""
        self._answers.put(answer)
        try:
            return self._wishes.get(timeout=self._port.patience_s)
        except queue.Empty:
            pass
        loop = self._run.loop
        with self._lock:
            if self._wishes.empty():
                self._away = asyncio.Future(loop=loop)
                self._away_since_s = time.monotonic()
        if self._away is not None:
            loop.is_away = True
            try:
                await self._away
            finally:
                self._away = None
                loop.is_away = False
        return self._wishes.get()

    async def _answer(self, wish: _Wish) -> _Outcome:
        try:
            with acting_for(wish.frame):
                value = wish.act()
                return _Outcome(await value if wish.is_awaited else value)
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._run.is_put_aside:
                raise
            return _Outcome(error=error)

    def _come_back(self, away: asyncio.Future[None]) -> None:
        if not away.done():
            away.set_result(None)
            self._run.wake()

    # -- The body's side

    def run(self, act: Callable[[], Awaitable[T]]) -> T:
        """Have the run do something and wait for it."""
        value: T = self._ask(act, is_awaited=True)
        return value

    def call(self, act: Callable[[], T]) -> T:
        """Have the run do something that does not wait."""
        value: T = self._ask(act, is_awaited=False)
        return value

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the body."""
        return threading.current_thread() is self._thread

    def check_place(self) -> None:
        """Raise if nothing may be called now, or here."""
        if not self.is_here:
            message = "ctx works only in the body of its workflow, not in steps or other threads"
            raise RuntimeError(f"{calling_line()}: {message}")
        if self._is_suspended:
            self._unwind()

    def _ask(self, act: Callable[[], Any], *, is_awaited: bool) -> UserValue:
        self.check_place()
        self._hand_over(_Wish(act, is_awaited, sys._getframe(2)))  # noqa: SLF001 (documented)
        answer = self._answers.get()
        if self._is_suspended:
            self._unwind()
        if answer.error is not None:
            raise answer.error
        return answer.value

    def _live(self, function: Callable[[], Any]) -> None:
        self._answers.get()
        if self._is_suspended:
            return
        with guard.guarded(self._run.loop.guard_mode, is_plain=True):
            outcome = _outcome_of(function)
        self._hand_over(outcome)

    def _hand_over(self, wish: _Wish | _Outcome) -> None:
        with self._lock:
            away = self._away
            if self._is_suspended:
                return
            self._wishes.put(wish)
        if away is not None:
            self._port.post(functools.partial(self._come_back, away))

    def _unwind(self) -> NoReturn:
        self._raised_count += 1
        if self._raised_count > _RAISED_MAX:
            # It would take the processor for itself for ever.
            threading.Event().wait()
        raise Suspended


class _BodyOnThread(Coroutine[Any, Any, Any]):
    """The coroutine of a body on a thread: it waits at the line of the body."""

    def __init__(self, thread: BodyThread, following: Coroutine[Any, Any, Any]) -> None:
        self._thread = thread
        self._following = following

    @property
    def line(self) -> str:
        """The line of the body."""
        return self._thread.line

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._following.__await__()

    def send(self, value: UserValue) -> UserValue:
        return self._advance(self._following.send, value)

    def throw(self, *error: UserValue) -> UserValue:
        return self._advance(self._following.throw, *error)

    def close(self) -> None:
        self._following.close()
        self._thread.suspend()

    def _advance(self, step: Callable[..., Any], *value: UserValue) -> UserValue:
        try:
            return step(*value)
        except StopIteration:
            raise
        except BaseException:
            # The run has ended, or was put aside; the thread has ended as well, or it unwinds.
            self._thread.suspend()
            raise


def _outcome_of(function: Callable[[], Any]) -> _Outcome:
    try:
        return _Outcome(function())
    except BaseException as error:  # noqa: BLE001 (it is the outcome of the run)
        return _Outcome(error=error)
