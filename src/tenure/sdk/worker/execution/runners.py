"""Where the attempts of a process run: its event loop, threads and children.

A worker of several queues has an executor for each of them; they share what is here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Protocol

from tenure.sdk.activity.definition import Activity
from tenure.sdk.worker.execution.async_runner import AsyncRunner
from tenure.sdk.worker.execution.execution import Site
from tenure.sdk.worker.execution.process_runner import ProcessRunner
from tenure.sdk.worker.execution.settings import ExecutionSettings
from tenure.sdk.worker.execution.thread_runner import ThreadCall, ThreadRunner
from tenure.sdk.worker.execution.watchdog import Watchdog
from tenure.v1 import task_pb2


class Runner(Protocol):
    """Where attempts run."""

    def execution(
        self, site: Site, task: task_pb2.AssignedTask, activity: Activity[..., Any]
    ) -> Any:  # noqa: ANN401 (each has its own kind, and gets it back)
        """Return an attempt to be submitted."""
        ...

    def submit(self, execution: Any) -> None:  # noqa: ANN401 (the same)
        """Run an attempt as soon as there is room for it."""
        ...


class Watcher(Protocol):
    """An executor that is informed about the event loop."""

    def loop_lag(self, milliseconds: int) -> None:
        """Handle a report of the lag of the user's event loop."""
        ...

    def async_names(self) -> list[str]:
        """Return which async activities run."""
        ...

    @property
    def active_count(self) -> int:
        """How many slots are in use."""
        ...

    def slot_taken(self) -> None:
        """Hear that fewer slots are free."""
        ...


class Runners:
    """Loop, threads and children; made and closed on the connection's loop.

    ``user_loop`` is where async activities run. Activities run in copies of ``context``.
    """

    def __init__(
        self,
        user_loop: asyncio.AbstractEventLoop,
        settings: ExecutionSettings = ExecutionSettings(),  # noqa: B008 (immutable)
        *,
        context: Context | None = None,
    ) -> None:
        """Start watching the user's loop; threads and processes start when they are needed."""
        self.context = context = context or copy_context()
        self.user_loop = user_loop
        limit = settings.max_concurrent
        self._threads = ThreadRunner(limit, context)
        self._processes = ProcessRunner(settings.max_processes or min(limit, _processor_count()))
        self._async = AsyncRunner(user_loop, context)
        self._by_place: dict[str, Runner] = {
            "loop": self._async,
            "thread": self._threads,
            "process": self._processes,
        }
        self._watchers: list[Watcher] = []
        self._watchdog = Watchdog(user_loop, self._report_lag, self._async_names, settings.clock)
        self._watchdog.start()

    def of(self, activity: Activity[..., Any]) -> Runner:
        """Return where an activity runs."""
        return self._by_place[activity.traits.where]

    def post(self, callback: Callable[[], None]) -> None:
        """Call something on the user's loop, in order; from any thread."""
        self._async.post(callback)

    def submit(self, call: ThreadCall) -> None:
        """Run something in a thread."""
        self._threads.submit(call)

    def used_count(self) -> int:
        """Return how many slots all executors together use."""
        return sum(each.active_count for each in self._watchers)

    def slot_taken(self) -> None:
        """Tell all executors that one of them uses another slot; from any thread."""
        for each in self._watchers:
            each.slot_taken()

    def watch(self, watcher: Watcher) -> None:
        """Inform an executor about the lag of the user's event loop."""
        self._watchers.append(watcher)

    async def close(self) -> None:
        """End threads and processes; asked again, nothing is left to end."""
        self._watchdog.stop()
        self._threads.close()
        await asyncio.to_thread(self._processes.close)

    def _report_lag(self, milliseconds: int) -> None:
        for each in self._watchers:
            each.loop_lag(milliseconds)

    def _async_names(self) -> list[str]:
        return sorted({name for each in self._watchers for name in each.async_names()})


def _processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
