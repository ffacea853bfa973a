"""A thread that runs one call after the other: SQLite's writer, and its reader."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tenure.store.failure import Lost

T = TypeVar("T")


class _Call(Generic[T]):
    """A function to run and the future that waits for it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def run(self) -> None:
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 (the waiting task gets it, whatever it is)
            self._answer(self._fail, error)
        else:
            self._answer(self._succeed, result)

    def _answer(self, function: Callable[..., None], value: object) -> None:
        # If the loop was closed meanwhile, nobody waits any more.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, value)

    def _succeed(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class CallThread:
    """Runs calls in their order, with one thread change each way."""

    def __init__(self, name: str) -> None:
        """Prepare; the first call starts the thread."""
        self._calls: queue.SimpleQueue[_Call[object] | None] = queue.SimpleQueue()
        self._is_stopped = False
        self._is_started = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the thread; a cancelled caller does not stop it."""
        if self._is_stopped:
            message = "The store is closed."
            raise Lost(message, reason="shutting_down")
        if not self._is_started:
            self._is_started = True
            self._thread.start()
        call = _Call(function)
        self._calls.put(call)  # type: ignore[arg-type]  # the queue carries calls of any result
        return await call.future

    def stop(self) -> None:
        """Let the waiting calls end, then the thread."""
        self._is_stopped = True
        if self._is_started:
            self._calls.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
