"""A thread with an event loop of its own: whatever a test does on its loop blocks nothing here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")
_STOP_SECONDS_MAX: Final = 10.0


class HostThread:
    """Runs coroutines on its loop, for callers in any thread."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_handle_exception)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there; the future has its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """End the loop, with what still runs on it, and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS_MAX)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


def hush_grpc() -> None:
    """Leave out of the running loop's log what gRPC says of other loops of the process.

    A test that has set up a handler of its own keeps it.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_handle_exception)


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Leave out two lines of gRPC, which is woken in each loop for the news of all of them.

    They are of a wake-up for nothing, and of news for a loop that has been closed meanwhile.
    """
    error = context.get("exception")
    is_poller = "PollerCompletionQueue._handle_events" in repr(context.get("handle"))
    is_closed = isinstance(error, RuntimeError) and "closed" in str(error)
    if not (is_poller and (is_closed or isinstance(error, BlockingIOError))):
        loop.default_exception_handler(context)
