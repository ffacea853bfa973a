"""Runs one activity without a server and a worker, and records what it reports.

>>> env = ActivityEnvironment(attempt=2, heartbeat_details=[40])
>>> assert await env.run(import_rows, "big.csv") == 100
>>> assert env.heartbeats[-1] == (100,)

An async activity is awaited; any other runs in the calling thread, also if a worker would use a
process. It gets its arguments as they are, and its exceptions reach the test as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

from tenure.sdk.activity.context import ActivityContext, Info, StopReason, enter
from tenure.sdk.activity.definition import Activity
from tenure.sdk.activity.option import Options
from tenure.sdk.instant import timedelta_of
from tenure.sdk.payload import Codec, Converter, UserValue
from tenure.testing.interruption import Interruption

P = ParamSpec("P")
R = TypeVar("R")


class Progress(NamedTuple):
    """What an activity has reported with ``activity.progress``."""

    percent: float | None
    message: str | None


class ActivityEnvironment:
    """Runs one activity, records what it reports, and can stop it.

    ``heartbeats`` are the details of each heartbeat, as plain values of JSON; ``progress`` is what
    was reported with ``activity.progress``. ``on_heartbeat`` is called after each of them, inside
    the activity, and may stop it: ``ActivityEnvironment(on_heartbeat=lambda env: env.cancel())``.
    """

    def __init__(
        self,
        *,
        attempt: int = 1,
        heartbeat_details: Sequence[object] = (),
        info: Info | None = None,
        codec: Codec | None = None,
        on_heartbeat: Callable[[ActivityEnvironment], object] | None = None,
    ) -> None:
        """Prepare an attempt; the details are those that an earlier attempt has left.

        ``info`` is what ``activity.info()`` returns, if it is to say more than the attempt.
        """
        self.heartbeats: list[tuple[Any, ...]] = []
        self.progress: list[Progress] = []
        self._attempt = attempt
        self._converter = Converter(codec)
        details = tuple(heartbeat_details)
        self._details = self._converter.encode_details(details) if details else None
        self._info = info
        self._on_heartbeat = on_heartbeat
        self._context: _Context | None = None
        self._reason: StopReason | None = None

    @overload
    def run(
        self, activity: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def run(self, activity: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def run(self, activity: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run the activity; an async one has to be awaited."""
        info = self._info or _info_of(activity, self._attempt)
        kind = _AsyncContext if _is_async(activity) else _SyncContext
        self._context = kind(self, info, self._converter, self._details)
        return self._context.run(lambda: activity(*args, **kwargs))

    def cancel(self, reason: StopReason = StopReason.CANCELLED) -> None:
        """Stop the activity, from any thread; asked before it runs, it does not begin.

        Async code gets a ``CancelledError``, other code ``Stopped``; ``activity.stop_reason()``
        says why.
        """
        self._reason = self._reason or reason
        if self._context is not None:
            self._context.stop(self._reason)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the activity was stopped, if it was."""
        return self._reason

    def record(
        self, details: tuple[Any, ...] | None, percent: float | None, message: str | None
    ) -> None:
        """Take in what the activity says."""
        if percent is not None or message is not None:
            self.progress.append(Progress(percent, message))
        else:
            self.heartbeats.append(details or ())
        if self._on_heartbeat is not None:
            self._on_heartbeat(self)


@overload
def run_activity(
    activity: Callable[..., Coroutine[Any, Any, R]],
    /,
    *args: object,
    attempt: int = ...,
    heartbeat_details: Sequence[object] = ...,
    info: Info | None = ...,
) -> Coroutine[Any, Any, R]: ...
@overload
def run_activity(
    activity: Callable[..., R],
    /,
    *args: object,
    attempt: int = ...,
    heartbeat_details: Sequence[object] = ...,
    info: Info | None = ...,
) -> R: ...
def run_activity(
    activity: Callable[..., Any],
    /,
    *args: Any,
    attempt: int = 1,
    heartbeat_details: Sequence[object] = (),
    info: Info | None = None,
) -> Any:
    """Run one activity alone and return its result; an async one has to be awaited.

    >>> assert await run_activity(charge, order, attempt=3) == receipt

    ``ActivityEnvironment`` does the same and shows what the activity has reported.
    """
    environment = ActivityEnvironment(
        attempt=attempt, heartbeat_details=heartbeat_details, info=info
    )
    return environment.run(activity, *args)


class _Context(ActivityContext):
    """The context of an activity that runs alone."""

    def __init__(
        self,
        environment: ActivityEnvironment,
        info: Info,
        converter: Converter,
        details: bytes | None,
    ) -> None:
        super().__init__(info, converter, details)
        self._environment = environment
        self.stop_reason = environment.stop_reason

    def send_beat(
        self, details: bytes | None, percent: float | None = None, message: str | None = None
    ) -> None:
        """Record what the activity says."""
        values = None if details is None else self.converter.decode_details(details)
        self._environment.record(values, percent, message)

    def run(self, call: Callable[[], UserValue]) -> UserValue:
        """Run the activity in this context."""
        raise NotImplementedError

    def stop(self, reason: StopReason) -> None:
        """Stop the activity; the first reason counts."""
        raise NotImplementedError


class _AsyncContext(_Context):
    """An activity as a task of the test's loop."""

    _task: asyncio.Task[Any] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _shield_depth = 0
    _is_cancelled = False

    async def run(self, call: Callable[[], UserValue]) -> UserValue:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._call(call))
        self._cancel()
        return await self._task

    async def _call(self, call: Callable[[], UserValue]) -> UserValue:
        # A task has a context of its own, so this ends with it.
        enter(self)
        return await call()

    def stop(self, reason: StopReason) -> None:
        self.stop_reason = self.stop_reason or reason
        if self._loop is None:
            return
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._cancel()
        else:
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self.stop_reason is None or self._task is None:
            return
        if not self._shield_depth and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        self._shield_depth += 1
        try:
            yield
        finally:
            self._shield_depth -= 1
            self._cancel()


class _SyncContext(_Context):
    """An activity in the calling thread."""

    _interruption: Interruption | None = None

    def run(self, call: Callable[[], UserValue]) -> UserValue:
        return copy_context().run(self._call, call)

    def _call(self, call: Callable[[], UserValue]) -> UserValue:
        enter(self)
        self._interruption = Interruption()
        with self._interruption:
            if self.stop_reason is not None:
                self._interruption.ask()
            self._interruption.check()
            return call()

    def send_beat(
        self, details: bytes | None, percent: float | None = None, message: str | None = None
    ) -> None:
        with self.shield():
            super().send_beat(details, percent, message)

    def stop(self, reason: StopReason) -> None:
        self.stop_reason = self.stop_reason or reason
        if self._interruption is not None:
            self._interruption.ask()

    def shield(self) -> contextlib.AbstractContextManager[None]:
        assert self._interruption is not None
        return self._interruption.shield()


def _is_async(activity: object) -> bool:
    if isinstance(activity, Activity):
        return activity.traits.where == "loop"
    return inspect.iscoroutinefunction(activity)


def _info_of(activity: object, attempt: int) -> Info:
    """Return the info that a worker would give a task of this activity."""
    name, options, token = getattr(activity, "__name__", "activity"), Options(), ""
    if isinstance(activity, Activity):
        name, options = activity.name, activity.options
        token = "token" if activity.traits.completes_later else ""
    return Info(
        task_id="00000000-0000-7000-8000-000000000001",
        attempt=attempt,
        failure_count=attempt - 1,
        type=name,
        queue=options.queue,
        namespace="default",
        worker_id="00000000-0000-7000-8000-000000000002",
        max_attempts=options.retry.max_attempts,
        priority=options.priority,
        labels=dict(options.labels),
        start_to_close=timedelta_of(options.start_to_close_ms),
        schedule_to_close=timedelta_of(options.schedule_to_close_ms),
        heartbeat_timeout=timedelta_of(options.heartbeat_timeout_ms),
        cancel_grace=timedelta_of(options.cancel_grace_ms),
        task_token=token,
        user_key=options.idempotency_key,
    )
