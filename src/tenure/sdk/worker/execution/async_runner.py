"""Runs async activities on the user's event loop, each as a task of its own."""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from tenure.sdk.activity.context import StopReason, enter
from tenure.sdk.activity.definition import Activity
from tenure.sdk.payload import UserValue
from tenure.sdk.worker.execution import attempt
from tenure.sdk.worker.execution.attempt import Ending
from tenure.sdk.worker.execution.execution import Execution, Site
from tenure.v1 import task_pb2


class AsyncExecution(Execution):
    """An attempt on the user's loop. Its asyncio task is used only in the thread of that loop."""

    def __init__(
        self,
        site: Site,
        task: task_pb2.AssignedTask,
        activity: Activity[..., Any],
        runner: AsyncRunner,
    ) -> None:
        """Prepare; the runner makes the task."""
        super().__init__(site, task, activity)
        self._runner = runner
        self._shield_depth = 0
        self._is_cancelled = False
        # A reference is needed, because a loop keeps only weak ones.
        self._task: asyncio.Task[None] | None = None

    def interrupt(self) -> None:
        """Let the loop cancel the task."""
        self._runner.post(self._cancel)

    @contextmanager
    def shield(self) -> Generator[None]:
        """Delay the cancellation until the block ends."""
        self._shield_depth += 1
        try:
            yield
        finally:
            self._shield_depth -= 1
            if self.stop_reason is not None:
                # Not at once: the block may have run in a thread that the activity started.
                self._runner.call(self._cancel)

    def _cancel(self) -> None:
        # It has not started yet, and checks the reason itself when it does.
        if self._task is None or self._shield_depth or self._is_cancelled:
            return
        self._is_cancelled = True
        self._task.cancel()

    def forsake(self) -> None:
        """Let the loop end although the code of this task ignores cancellation."""
        self._runner.post(self._unregister)

    def _unregister(self) -> None:
        if self._task is not None:
            # Documented for those who make tasks of their own. A runner that ends its loop would
            # cancel the task and wait for its end, which never comes.
            asyncio._unregister_task(self._task)  # noqa: SLF001 (a documented name)

    async def run(self) -> None:
        """Run the activity from its input to its report: the body of the task."""
        enter(self)
        self._task = asyncio.current_task()
        ending: Ending = None
        try:
            if self.stop_reason is None:
                arguments = attempt.arguments_of(self.task, self.activity, self.converter)
                called: Any = self.activity.invoke(arguments)
                result = await (_guarded(self, called) if self.is_exclusive else called)
                ending = attempt.succeeded(self.task, result, self.converter)
        except asyncio.CancelledError as error:
            # Without a reason, user code cancelled itself. That is a failure.
            if self.stop_reason is None:
                ending = attempt.ended_by(self.task, error, self.converter)
        except GeneratorExit:
            # The loop is closed, so nobody is left to inform.
            raise
        except BaseException as error:
            ending = attempt.ended_by(self.task, error, self.converter)
        self._task = None
        self.end(ending)


@types.coroutine
def _guarded(execution: AsyncExecution, called: UserValue) -> Generator[Any, Any, Any]:
    """Run exclusive code. Check the lease before each step: the process may have been suspended.

    The connection would notice that one step too late.
    """
    steps = called.__await__()
    step: Callable[[Any], Any] = steps.send
    value: Any = None
    while True:
        if execution.stop_reason is None and execution.site.is_fenced():
            execution.stop_reason = StopReason.LOST_LEASE
            step, value = steps.throw, asyncio.CancelledError()
        try:
            awaited = step(value)
        except StopIteration as end:
            return end.value
        try:
            value = yield awaited
            step = steps.send
        except BaseException as error:
            step, value = steps.throw, error


class AsyncRunner:
    """Passes attempts to the user's loop. Several that arrive together wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """Run on ``loop``, each attempt in a copy of ``context``."""
        self._loop = loop
        self._context = context
        self._inbox: deque[Callable[[], None] | AsyncExecution] = deque()
        self._is_waking = False

    def execution(
        self, site: Site, task: task_pb2.AssignedTask, activity: Activity[..., Any]
    ) -> AsyncExecution:
        """Return an attempt to be submitted."""
        return AsyncExecution(site, task, activity, self)

    def call(self, function: Callable[[], None]) -> None:
        """Call something in the loop's thread; from any thread."""
        self._loop.call_soon_threadsafe(function)

    def submit(self, execution: AsyncExecution) -> None:
        """Start an attempt on the loop."""
        self.post(execution)

    def post(self, item: Callable[[], None] | AsyncExecution) -> None:
        """Run something in the loop's thread, in order; from any thread."""
        self._inbox.append(item)
        if self._is_waking:
            return
        self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._take_in)
        except RuntimeError:
            # The loop is closed. Waiting attempts end after their grace period.
            self._inbox.clear()

    def _take_in(self) -> None:
        # Cleared first, so that a later post is either seen below or wakes the loop again.
        self._is_waking = False
        inbox = self._inbox
        for _ in range(len(inbox)):
            item = inbox.popleft()
            if isinstance(item, AsyncExecution):
                # A task copies the context that it is made in. A task factory of the user may
                # not know the argument `context`.
                self._context.run(self._loop.create_task, item.run(), name=item.activity.name)
            else:
                item()
