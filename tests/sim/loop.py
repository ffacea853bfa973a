"""An asyncio event loop on simulated time.

Where a real loop waits for its next timer, this one moves its time to it. Everything runs in one
thread, in an order that follows from the program alone. Out of reach are sets of bare futures or
coroutines: Python orders them by address (`asyncio.as_completed` makes one). Use tasks.
"""

import asyncio
import heapq
import math
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import closing
from contextvars import Context
from functools import partialmethod
from itertools import count
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Steps = Coroutine[Any, Any, T] | Generator[Any, None, T]
Callback = Callable[[*Ts], object]
MAX_STEPS: Final = 100_000  # At one instant; under a second of real time.
TASKS_SHOWN_MAX: Final = 10  # In the message of an error.
STUCK_HINT: Final = "look for a loop that awaits sleep(0) or no timer at all, or raise max_steps"
FORBIDDEN: Final = {
    "executors": "run_in_executor set_default_executor",
    "subprocesses": "subprocess_exec subprocess_shell connect_read_pipe connect_write_pipe",
    "signal handlers": "add_signal_handler remove_signal_handler",
    "task factories": "set_task_factory",
    "sockets": "add_reader remove_reader add_writer remove_writer sock_recv sock_recv_into"
    " sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept"
    " sock_sendfile create_connection create_server create_datagram_endpoint getnameinfo sendfile"
    " create_unix_connection create_unix_server connect_accepted_socket start_tls getaddrinfo",
}


class Deadlocked(RuntimeError):
    """Nothing is scheduled, so what the loop runs for can never be done."""


class Stuck(RuntimeError):
    """The program keeps running at one instant and lets no time pass."""


class Forbidden(RuntimeError):
    """The program asked for something that a simulation cannot repeat."""


class _Task(asyncio.Task[Any]):
    """Hashed by number, not address: a `TaskGroup` cancels its tasks in the order of a set."""

    def __init__(self, number: int, *args: Any, **options: Any) -> None:
        self._number = number  # First, because asyncio puts the new task into a set.
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


class _AsyncGenerators(weakref.WeakKeyDictionary[AsyncGenerator[Any, Any], None]):
    """Replaces asyncio's weak set, so that generators are closed in the order they started."""

    def add(self, generator: AsyncGenerator[Any, Any]) -> None:
        self[generator] = None

    def discard(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.pop(generator, None)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs asyncio programs without waiting; `time()` starts at 0 and moves from timer to timer.

    Timers at one instant run in the order they were scheduled; at infinity they never come due. A
    program that sleeps again and again without end is not noticed: give it an `asyncio.timeout`.
    """

    # Members of BaseEventLoop that its stub leaves out.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(self, *, max_steps: int = MAX_STEPS) -> None:
        super().__init__()
        self._asyncgens = _AsyncGenerators()
        self._max_steps = max_steps
        self._now, self._steps = 0.0, 0
        # The number breaks ties: a TimerHandle compares by its instant only and heaps are unstable.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers, self._task_numbers = count(1), count(1)
        # Strong, unlike asyncio's own: when garbage is collected must not decide when tasks end.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._owner = threading.get_ident()

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._now

    def pending(self) -> list[asyncio.Task[Any]]:
        """List the tasks that are not done, oldest first; `asyncio.all_tasks` has no order."""
        return [task for task in self._tasks if not task.done()]

    def create_task(
        self, coro: Steps[T], *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Start a task; its default name is its number in this loop, not in the process."""
        self._check_closed()
        number = next(self._task_numbers)
        task = _Task(number, coro, loop=self, name=str(name or f"Task-{number}"), context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call_at(
        self, when: float, callback: Callback[*Ts], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback, after all that were scheduled for the same instant before."""
        self._check_closed()
        assert not math.isnan(when), "NaN has no place in the order of timers"
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def call_soon_threadsafe(
        self, callback: Callback[*Ts], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call soon, for asyncio's own use in this thread."""
        if threading.get_ident() != self._owner:
            raise Forbidden(
                "a simulated loop refuses call_soon_threadsafe: it has no other threads"
            )
        return self.call_soon(callback, *args, context=context)

    def cancel_pending(self) -> None:
        """Cancel what is not done, oldest first, and let it end."""
        leftovers = self.pending()
        for task in leftovers:
            task.cancel()
        self._steps = 0
        if leftovers:
            self.run_until_complete(asyncio.wait(leftovers))  # Unlike gather, hides no error.
        self.run_until_complete(self.shutdown_asyncgens())

    def _run_once(self) -> None:
        if not self._ready and not self._stopping:
            self._advance()
        while self._timers and self._timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(self._timers)[2])
        # What these handles make ready runs in the next round, as in asyncio.
        self._steps += len(self._ready)
        if self._steps > self._max_steps:
            raise Stuck(self._explain(f"over {self._max_steps} steps at one instant; {STUCK_HINT}"))
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001 -- what asyncio runs has no public name.

    def _advance(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers or self._timers[0][0] == math.inf:
            raise Deadlocked(
                self._explain("nothing is scheduled; look for an await that nobody wakes")
            )
        # Exactly the timer's instant, not a sum of differences: no timer is early by a rounding.
        self._now = max(self._now, self._timers[0][0])
        self._steps = 0

    def _explain(self, what: str) -> str:
        tasks = self.pending()
        shown = ", ".join(
            f"{task.get_name()} in {frame.f_code.co_qualname}:{frame.f_lineno}"
            for task in tasks[:TASKS_SHOWN_MAX]
            for frame in task.get_stack(limit=1)
        )
        return f"at {self._now} s: {what}. Pending tasks: {len(tasks)} ({shown})"


def _refuse(_loop: SimulatedLoop, what: str, *_args: object, **_options: object) -> NoReturn:
    raise Forbidden(f"a simulated loop refuses {what}")


for _kind, _names in FORBIDDEN.items():
    for _name in _names.split():
        setattr(SimulatedLoop, _name, partialmethod(_refuse, f"{_name}: it has no {_kind}"))


def run(main: Callable[[], Coroutine[Any, Any, T]], *, loop: SimulatedLoop | None = None) -> T:
    """Run `main()` to its end on a fresh loop, cancel what it left behind and close the loop.

    Example: `run(lambda: asyncio.sleep(365 * 86_400, "a year later"))` returns at once.
    """
    with closing(loop or SimulatedLoop()) as owned:
        try:
            return owned.run_until_complete(main())
        finally:
            owned.cancel_pending()
