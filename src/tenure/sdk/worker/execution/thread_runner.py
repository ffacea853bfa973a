"""Runs sync activities in threads of its own, and interrupts them.

A thread is stopped by an exception that the interpreter raises in it at its next bytecode. It must
never reach the code of the pool or the next activity. So there is one ticket: it is there while the
activity runs without a shield, and only the thread that takes it may raise, or end the activity.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context
from types import TracebackType
from typing import Any, Final

from tenure.sdk.activity.context import ActivityContext, Stopped
from tenure.sdk.activity.definition import Activity
from tenure.sdk.worker.execution import sync_call
from tenure.sdk.worker.execution.attempt import Ending
from tenure.sdk.worker.execution.execution import Execution, Site
from tenure.sdk.worker.execution.thread_pool import Pool
from tenure.sdk.worker.execution.thread_trace import stack_of
from tenure.v1 import task_pb2

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_exception.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_exception.restype = ctypes.c_int
_PAUSE_S: Final = 0.000_1
# Modules that hold locks between two lines: an exception there would leave a lock behind that
# the whole process waits for, such as that of a log handler.
_FRAGILE: Final = frozenset({"concurrent", "importlib", "logging", "queue", "threading"})
_FRAMES_LOOKED_AT: Final = 8
_FILE: Final = re.compile(r' *File "(.*)", line ')
# Code that does nothing but wait for a lock is interrupted all the same.
_PATIENCE_S: Final = 0.5
# In Python 3.11 an exception that waits for a blocked thread makes every other thread that is
# traced (by coverage or a debugger) stand still: there it is set when the thread moves.
_TRACING_WAITS: Final = sys.version_info < (3, 12)

_at_work: Final[dict[int, ThreadCall]] = {}


class _Stop(Stopped):
    """The exception that is set; it notes its arrival, also where user code swallows it."""

    def __init__(self) -> None:
        super().__init__()
        execution = _at_work.get(threading.get_ident())
        if execution is not None:
            execution.has_arrived = True


_STOP: Final = ctypes.py_object(_Stop)


class ThreadCall(ActivityContext):
    """Code that runs in a thread of the pool and can be interrupted there."""

    clock: Callable[[], float]

    def prepare(self, clock: Callable[[], float]) -> None:
        """Begin; a thread of the pool arms it."""
        self.clock = clock
        self._thread_id = 0
        # Empty or with one element; taking it out is atomic.
        self._ticket: list[bool] = []
        # The exception was set, and it was seen in the thread.
        self._is_raised = False
        self.has_arrived = False
        self._shield_depth = 0
        self._patience_ends_at_s: float | None = None
        self._place: tuple[int, int] | None = None

    def run_code(self) -> None:
        """Run user code to its end; in the thread of the pool."""
        raise NotImplementedError

    def report_end(self) -> None:
        """Say how it ended; in the same thread, which is free again then."""
        raise NotImplementedError

    # In the thread of the activity.

    def arm(self) -> None:
        """Put the ticket down; raise a stop that came before."""
        self._thread_id = threading.get_ident()
        _at_work[self._thread_id] = self
        self._put_down()

    def disarm(self) -> None:
        """Take the ticket for good, or the exception of whoever has taken it."""
        if not self._pick_up() and not self.has_arrived:
            with contextlib.suppress(Stopped):
                _force()

    def lose_stop(self) -> None:
        """Ask for another stop: Python has thrown the first one away."""
        while not self._is_raised:
            time.sleep(_PAUSE_S)
        self._is_raised = self.has_arrived = False
        self._patience_ends_at_s = self.clock()
        self._ticket.append(True)

    def shield(self) -> contextlib.AbstractContextManager[None]:
        """Keep the stop until the block ends."""
        return _Shield(self)

    def enter_shield(self) -> None:
        """Take the ticket, so that nobody can raise."""
        if threading.get_ident() == self._thread_id:
            if not self._shield_depth and not self._pick_up() and not self.has_arrived:
                _force()
            self._shield_depth += 1

    def leave_shield(self) -> None:
        """Put the ticket down again; raise a stop that came meanwhile."""
        if threading.get_ident() == self._thread_id:
            self._shield_depth -= 1
            if not self._shield_depth:
                self._put_down()

    def _pick_up(self) -> bool:
        """Take the ticket; False if it was used, and then the exception has been set."""
        try:
            self._ticket.pop()
        except IndexError:
            while not self._is_raised:
                time.sleep(_PAUSE_S)
            return False
        return True

    def _put_down(self) -> None:
        if self._is_raised:
            return
        self._ticket.append(True)
        # Looked at after the ticket lies there: a stop between the two finds the ticket.
        if self.stop_reason is not None and self._pick_up():
            self._is_raised = True
            raise _Stop

    # In another thread.

    def interrupt(self) -> None:
        """Raise the stop in the thread at its next bytecode, a little later if that is fragile."""
        self._patience_ends_at_s = self.clock() + _PATIENCE_S
        self.raise_if_possible()

    def raise_if_possible(self) -> None:
        """Raise a stop that had to wait."""
        if self._patience_ends_at_s is None or not self._may_raise(self._patience_ends_at_s):
            return
        self._patience_ends_at_s = None
        try:
            self._ticket.pop()
        except IndexError:
            # Not begun, shielded or over: whoever puts the ticket down looks at the reason.
            return
        _set_exception(self._thread_id, _STOP)
        self._is_raised = True

    def _may_raise(self, patience_ends_at_s: float) -> bool:
        if _TRACING_WAITS and sys.gettrace() is not None:
            frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 (a documented name)
            place = (id(frame), -1 if frame is None else frame.f_lasti)
            before, self._place = self._place, place
            if frame is not None and before in (None, place):
                return False
        return self.clock() >= patience_ends_at_s or not _is_fragile(self._thread_id)


class ThreadExecution(ThreadCall, Execution):
    """An attempt in a thread of the pool."""

    def __init__(
        self, site: Site, task: task_pb2.AssignedTask, activity: Activity[..., Any]
    ) -> None:
        """Prepare; a thread of the pool arms it."""
        Execution.__init__(self, site, task, activity)
        self.prepare(site.clock)
        self._ending: Ending = None

    def run_code(self) -> None:
        """Run the activity."""
        self._ending = sync_call.call(self)

    def report_end(self) -> None:
        """Report how it ended."""
        self.end(self._ending)

    def send_beat(
        self, details: bytes | None, percent: float | None = None, message: str | None = None
    ) -> None:
        """Report progress."""
        # An exception between the lines of the reporter would leave it half done.
        with self.shield():
            Execution.send_beat(self, details, percent, message)

    def tick(self) -> None:
        """Send a heartbeat that has waited long enough, and raise a stop that had to wait."""
        Execution.tick(self)
        self.raise_if_possible()


def _force() -> None:
    """Raise the exception that was set for this very thread, if it has not come yet.

    Set again, it takes the place of the one that waits, and is raised at once: the interpreter
    looks for it when the call returns. Taking it back instead would leave the interpreter looking
    for it at every step, in every thread.
    """
    _set_exception(threading.get_ident(), _STOP)
    while True:
        time.sleep(0)


def _is_fragile(thread_id: int) -> bool:
    """Return whether a thread is where an exception might leave a lock behind."""
    stack = stack_of(thread_id)
    if stack is None:
        # Unknown. The caller stops waiting after a while.
        return True
    for line in stack[:_FRAMES_LOOKED_AT]:
        found = _FILE.match(line)
        path = found[1] if found else ""
        if path == sync_call.__file__:
            # Below are we ourselves, and the thread.
            return False
        *folders, file = path.replace("\\", "/").split("/")
        names = {file.removesuffix(".py"), *folders[-2:]}
        if names & _FRAGILE or path.startswith("<frozen importlib"):
            return True
    return False


def _keep_stops() -> None:
    """Detect stops that are raised in a destructor, which swallows exceptions.

    Such a stop is raised again by the connection's thread, outside of the destructor.
    """
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        execution = _at_work.get(threading.get_ident())
        if execution is not None and issubclass(unraisable.exc_type, _Stop):
            execution.lose_stop()
        else:
            before(unraisable)

    sys.unraisablehook = hook


_keep_stops_once: Final = functools.cache(_keep_stops)


class _Shield(contextlib.AbstractContextManager[None]):
    """``with activity.shield():``; without a generator, whose own lines could be interrupted."""

    __slots__ = ("_execution",)

    def __init__(self, execution: ThreadCall) -> None:
        self._execution = execution

    def __enter__(self) -> None:
        self._execution.enter_shield()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._execution.leave_shield()


class ThreadRunner:
    """Runs attempts in threads: as many as are busy at the same time, and at most ``limit``."""

    def __init__(self, limit: int, context: Context) -> None:
        """Run each attempt in a copy of ``context``."""
        _keep_stops_once()
        self._context = context
        self._pool: Pool[ThreadCall] = Pool("tenure-activity", limit, self._run)

    def execution(
        self, site: Site, task: task_pb2.AssignedTask, activity: Activity[..., Any]
    ) -> ThreadExecution:
        """Return an attempt to be submitted."""
        return ThreadExecution(site, task, activity)

    def submit(self, execution: ThreadCall) -> None:
        """Run an attempt, or a step, as soon as a thread is free."""
        self._pool.submit(execution)

    def close(self) -> None:
        """Let idle threads end; a busy one ends with what it runs, and keeps nothing alive."""
        self._pool.close()

    def _run(self, execution: ThreadCall) -> None:
        self._context.copy().run(execution.run_code)
        # The attempt may be large, and the next one may come much later.
        _at_work.pop(threading.get_ident(), None)
        execution.report_end()
