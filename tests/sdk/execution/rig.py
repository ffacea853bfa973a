"""Execution without a connection: real loops, threads and processes, and a recorder."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from tenure.sdk.activity.context import StopReason
from tenure.sdk.activity.definition import Activity
from tenure.sdk.activity.registry import Registry
from tenure.sdk.payload import Codec, Converter
from tenure.sdk.worker.execution.executor import TaskExecutor
from tenure.sdk.worker.execution.runners import Runners
from tenure.sdk.worker.execution.settings import ExecutionSettings
from tenure.sdk.worker.executor_protocol import ChildReport, NumberedEntry, WantedPage
from tenure.v1 import task_pb2, workflow_service_pb2
from tests.bounds import WAIT_S
from tests.polling import eventually

T = TypeVar("T")
_numbers = itertools.count(1)


class Recorder:
    """A reporter that keeps all it hears, in order."""

    def __init__(self) -> None:
        self.heard: list[task_pb2.TaskFinish | task_pb2.TaskBeat] = []
        self.stuck_counts: list[int] = []
        self.lags: list[int] = []

    def finish(self, finish: task_pb2.TaskFinish) -> None:
        self.heard.append(finish)

    def beat(self, beat: task_pb2.TaskBeat) -> None:
        self.heard.append(beat)

    def stuck(self, count: int) -> None:
        self.stuck_counts.append(count)

    def loop_lag(self, milliseconds: int) -> None:
        self.lags.append(milliseconds)

    def record(self, entries: Sequence[NumberedEntry]) -> None:
        raise NotImplementedError

    def report_children(self, reports: Sequence[ChildReport]) -> None:
        raise NotImplementedError

    def fetch(self, wanted: WantedPage) -> None:
        raise NotImplementedError

    def signal(self, run_id: str, signal: workflow_service_pb2.NewSignal) -> Future[None]:
        raise NotImplementedError

    def finishes(self, task_id: str = "") -> list[task_pb2.TaskFinish]:
        return [
            each
            for each in list(self.heard)
            if isinstance(each, task_pb2.TaskFinish) and task_id in ("", each.task_id)
        ]

    def beats(self, task_id: str = "") -> list[task_pb2.TaskBeat]:
        return [
            each
            for each in list(self.heard)
            if isinstance(each, task_pb2.TaskBeat) and task_id in ("", each.task_id)
        ]


class Rig:
    """An executor on a connection thread of its own; the test's loop is the user's."""

    def __init__(
        self,
        *activities: object,
        codec: Codec | None = None,
        settings: ExecutionSettings | None = None,
    ) -> None:
        self.registry = Registry(activities)
        self.converter = Converter(codec)
        self.reporter = Recorder()
        self._settings = settings or ExecutionSettings(namespace="shop", max_concurrent=20)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="connection")
        self.executor: TaskExecutor

    async def __aenter__(self) -> Self:
        self._thread.start()
        user_loop = asyncio.get_running_loop()

        async def make() -> TaskExecutor:
            runners = Runners(user_loop, self._settings)
            return TaskExecutor(
                self.registry, self.converter, self.reporter, runners, self._settings
            )

        self.executor = await self.there(make())
        self.executor.worker_id = "worker-1"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.there(self.executor.close())
        await self.there(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, WAIT_S)
        self._loop.close()

    async def there(self, made: Coroutine[Any, Any, T]) -> T:
        """Run something on the connection's loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made, self._loop))

    def call_and_block(self, function: Callable[[], T]) -> T:
        """Call something on the connection's loop while the user's loop stands still."""

        async def made() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(made(), self._loop).result(WAIT_S)

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Call something on the connection's loop."""

        async def made() -> T:
            return function(*args)

        return await self.there(made())

    def task(
        self, activity: Activity[..., Any], *args: object, **fields: Any
    ) -> task_pb2.AssignedTask:
        """Return a task for an activity, as its worker gets it."""
        payload = self.converter.seal(activity.call(*args).payload)
        values: dict[str, Any] = {
            "task_id": f"task-{next(_numbers)}",
            "attempt": 1,
            "type": activity.name,
            "task_queue": "default",
            "input": payload.data,
            "encoding": payload.encoding,
            "cancel_grace_period_ms": 60_000,
        }
        return task_pb2.AssignedTask(**{**values, **fields})

    async def start(
        self, activity: Activity[..., Any], *args: object, **fields: Any
    ) -> task_pb2.AssignedTask:
        """Start a task; return it."""
        task = self.task(activity, *args, **fields)
        await self.call(self.executor.start, task)
        return task

    async def start_all(self, tasks: list[task_pb2.AssignedTask]) -> None:
        """Start tasks that arrive together."""

        def start() -> None:
            for each in tasks:
                self.executor.start(each)

        await self.call(start)

    async def stop(
        self, task: task_pb2.AssignedTask, reason: StopReason = StopReason.CANCELLED
    ) -> None:
        """Ask a task to stop."""
        await self.call(self.executor.stop, task.task_id, task.attempt, reason)

    async def finish_of(self, task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
        """Return the report of a task's end."""
        await eventually(lambda: self.reporter.finishes(task.task_id), "the finish")
        (finish,) = self.reporter.finishes(task.task_id)
        return finish

    async def run(
        self, activity: Activity[..., Any], *args: object, **fields: Any
    ) -> task_pb2.TaskFinish:
        """Start a task and return the report of its end."""
        return await self.finish_of(await self.start(activity, *args, **fields))
