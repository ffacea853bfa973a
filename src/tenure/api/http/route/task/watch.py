"""Waiting for a task: one answer at its end, or a stream of its changes.

The engine reports the end, at whichever server it was. Progress is read every half second.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final, Self

import msgspec
from msgspec import UNSET, UnsetType

from tenure.api.http.edge.server_sent import ServerSentEvents
from tenure.api.http.operation import RequestContext
from tenure.api.http.route.task import view
from tenure.api.http.view import View, or_unset
from tenure.core.limits import STREAM_PING_MS, WATCH_READ_MS
from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.replica.result_watch import Result
from tenure.errors import Rejection, Unavailable

TaskKey = tuple[str, str]
_LINE_ENDS: Final = re.compile(rb"\r\n|\r|\n")


class _End:
    """Called once at the end of a task; a stop of the server ends the wait too."""

    def __init__(self, context: RequestContext, key: TaskKey) -> None:
        self._results = context.engine.results
        self._stopping = context.readiness.stopping
        self._key = key
        self._heard: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> Self:
        self._results.watch(self._key, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._results.unwatch(self._key, self._hear)

    def _hear(self, result: Result) -> None:
        if not self._heard.done():
            self._heard.set_result(result)

    async def wait(self, wait_ms: int) -> Task | None:
        """Return the finished task, or None after the time or when the server stops."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        waited: set[asyncio.Future[Any]] = {self._heard, stopping}
        try:
            await asyncio.wait(waited, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        if not self._heard.done():
            return None
        result = self._heard.result()
        if isinstance(result, Rejection):
            raise result.to_error()
        return result


async def wait_for_end(context: RequestContext, key: TaskKey, *, wait_ms: int) -> Task:
    """Return a task when it has ended, or in its present state after the time."""
    task = await _read(context.engine, key)
    if not wait_ms or task.finished_at_ms is not None:
        return task
    with context.waits, context.allowance.waits.place(key[0]), _End(context, key) as end:
        finished = await end.wait(wait_ms)
    return finished or await _read(context.engine, key)


async def _read(engine: Engine, key: TaskKey) -> Task:
    return await query.get_task(engine.store, namespace=key[0], task_id=key[1])


class Change(View, frozen=True):
    """The data of the events state and progress."""

    task_id: str
    state: view.StateName
    attempt: int
    version: int
    worker_id: str | UnsetType = UNSET
    progress_percent: float | UnsetType = UNSET
    progress_message: str | UnsetType = UNSET


class TaskEventStream(ServerSentEvents):
    """Server-sent events about one task, from its present state to its end."""

    def __init__(self, context: RequestContext, caller: str, key: TaskKey, task: Task) -> None:
        """Begin with a task that was just read."""
        super().__init__(context, caller)
        self._key = key
        self._task = task

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Send each change, and the task at its end."""
        task, shown = self._task, None
        silent_ms = 0
        with _End(self._context, self._key) as end:
            while not self._context.readiness.stopping.is_set():
                if shown is None or _mark(task) != _mark(shown):
                    yield _change(task, shown)
                    shown, silent_ms = task, 0
                elif silent_ms >= STREAM_PING_MS:
                    yield b": still there\n\n"
                    silent_ms = 0
                if task.finished_at_ms is not None:
                    yield _event("result", view.task(task), task.version)
                    return
                # While the store is not available nothing is sent; the changes come afterwards.
                with suppress(Unavailable):
                    task = await end.wait(WATCH_READ_MS) or await _read(
                        self._context.engine, self._key
                    )
                silent_ms += WATCH_READ_MS
        yield b": the server stops\n\n"


def _mark(task: Task) -> tuple[object, ...]:
    """Return a value that differs when a task has changed.

    The version is not enough: a task that this server has just finished is reported with the
    version before its row was written.
    """
    return task.state, task.attempt, task.version


def _change(task: Task, shown: Task | None) -> bytes:
    is_state = shown is None or (task.state, task.attempt) != (shown.state, shown.attempt)
    progress = task.progress
    change = Change(
        task_id=task.id,
        state=task.state.upper(),
        attempt=task.attempt,
        version=task.version,
        worker_id=or_unset(task.worker_id),
        progress_percent=or_unset(progress.percent),
        progress_message=or_unset(progress.message),
    )
    return _event("state" if is_state else "progress", change, task.version)


def _event(name: str, value: object, version: int) -> bytes:
    """Return an event; a payload may hold line ends between its values."""
    lines = _LINE_ENDS.split(msgspec.json.encode(value))
    data = b"".join(b"data: %b\n" % line for line in lines)
    return b"id: %d\nevent: %b\n%b\n" % (version, name.encode(), data)
