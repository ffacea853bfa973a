"""The connection thread: one per process, with the event loop on which synchronous clients work.

A process that was forked has none of its parent's threads, so it starts its own with its first
call, and with it a client of its own. What the parent made is left alone: neither used nor freed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from tenure.sdk.duration import Duration
from tenure.sdk.transport.api_key import find_api_key
from tenure.sdk.transport.event_loop import new_event_loop
from tenure.sdk.transport.target import check_client, split_targets
from tenure.sdk.transport.tls import TLS, resolve

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tenure.sdk.client import Client

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("tenure.client")

_CLOSE_SECONDS: Final = 2.0
# A signal that comes just before a wait begins does not end it; it is noticed at the next look.
_LOOK_SECONDS: Final = 0.5


class ConnectionThread:
    """A daemon thread that runs an event loop until the process ends."""

    def __init__(self) -> None:
        """Start it."""
        self.pid = os.getpid()
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tenure-connection", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        assert threading.current_thread() is not self._thread, (
            "This call would wait for its own thread."
        )
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the loop, and what still runs on it."""
        with contextlib.suppress(TimeoutError):
            self.submit(_cancel_all()).result(_CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


class _Present:
    """The thread of this process, and whatever a parent left behind."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: ConnectionThread | None = None
        self.left_behind: list[object] = []

    def get(self) -> ConnectionThread:
        thread = self.thread
        if thread is None:
            with self.lock:
                thread = self.thread
                if thread is None:
                    thread = self.thread = ConnectionThread()
        return thread

    def forget(self) -> None:
        """Begin anew in a forked process; freeing what was the parent's would disturb it."""
        self.left_behind.append(self.thread)
        # Another thread of the parent may have held it at that moment.
        self.lock = threading.Lock()
        self.thread = None

    def stop(self) -> None:
        thread = self.thread
        if thread is not None and thread.pid == os.getpid():
            self.thread = None
            thread.stop()


_present: Final = _Present()
os.register_at_fork(after_in_child=_present.forget)
atexit.register(_present.stop)


class CallInbox:
    """Where the caller's thread finds what it is to call while it waits."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def door(self, function: Callable[P, object] | None) -> Callable[P, Awaitable[object]] | None:
        """Return a function for the loop that runs ``function`` in the thread that waits."""
        if function is None:
            return None

        async def knock(*args: P.args, **kwargs: P.kwargs) -> object:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[object] = loop.create_future()

            def settle(value: object, error: BaseException | None) -> None:
                if answer.done():
                    return
                if error is None:
                    answer.set_result(value)
                else:
                    answer.set_exception(error)

            def call() -> None:
                value, failure = None, None
                try:
                    value = function(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 (it belongs to whoever waits)
                    failure = error
                loop.call_soon_threadsafe(settle, value, failure)

            self._calls.put(call)
            return await answer

        return knock

    def serve(self, future: Future[T]) -> T:
        """Call what comes in until ``future`` is done; return its result."""
        future.add_done_callback(lambda _: self._calls.put(None))
        while (call := self._next()) is not None:
            call()
        return future.result()

    def _next(self) -> Callable[[], None] | None:
        while True:
            try:
                return self._calls.get(timeout=_LOOK_SECONDS)
            except Empty:
                continue


class Anchor:
    """The asynchronous client behind a synchronous one: made once in each process."""

    def __init__(
        self,
        *,
        target: str | Sequence[str] | None,
        namespace: str | None,
        timeout: Duration,
        api_key: str | Path | None,
        tls: TLS | bool | None,
        **others: object,
    ) -> None:
        """Keep the settings of the client; those that are wrong are refused at once."""
        namespace = check_client(target, namespace, timeout)
        find_api_key(api_key)
        resolve(tls)
        self._settings: dict[str, Any] = {
            "target": target,
            "namespace": namespace,
            "timeout": timeout,
            "api_key": api_key,
            "tls": tls,
            **others,
        }
        self._client: Client | None = None
        self._pid = 0
        self._is_closed = False
        self._is_told = False

    def __repr__(self) -> str:
        place = ", ".join(split_targets(self._settings["target"]))
        return f"<SyncClient of {place}, namespace {self._settings['namespace']}>"

    def run(
        self, work: Callable[[Client], Coroutine[Any, Any, T]], inbox: CallInbox | None = None
    ) -> T:
        """Do something with the client and wait for it; Ctrl-C ends the wait and the work."""
        if not self._is_told:
            self._look_for_loop()
        future = _present.get().submit(self._work(work))
        try:
            return (inbox or CallInbox()).serve(future)
        except BaseException:
            future.cancel()
            raise

    def call(self, work: Callable[[Client], T]) -> T:
        """Do something with the client that does not wait."""

        async def at_once(client: Client) -> T:
            return work(client)

        return self.run(at_once)

    def iterate(self, make: Callable[[Client], AsyncIterator[T]]) -> Iterator[T]:
        """Go through what the client yields."""
        source = _Source(make)
        try:
            while (item := self.run(source.next)) is not _END:
                yield item  # type: ignore[misc]  # the end is not among them
        finally:
            if not self._is_closed:
                self.run(source.close)

    def close(self) -> None:
        """Close the client of this process."""
        self._is_closed = True
        if self._client is not None and self._pid == os.getpid():
            _present.get().submit(self._client.close()).result()

    def _look_for_loop(self) -> None:
        """Warn once of a call that blocks an event loop. A notebook may want just that."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._is_told = True
        log.warning(
            "A SyncClient is used in a thread that runs an event loop: nothing else on that loop "
            "goes on until the call returns. Use Client there, and await its calls."
        )

    async def _work(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return await work(self._present_client())

    def _present_client(self) -> Client:
        if self._is_closed:
            raise RuntimeError("The client was closed. Make a new one.")
        pid = os.getpid()
        if self._client is None or self._pid != pid:
            # Loaded now: whoever forks before the first call does it without gRPC.
            from tenure.sdk.client import Client  # noqa: PLC0415

            _present.left_behind.append(self._client)
            self._client = Client(**self._settings)
            self._pid = pid
        return self._client


class _Source(Generic[T]):
    """An asynchronous iterator that is asked from outside its loop."""

    def __init__(self, make: Callable[[Client], AsyncIterator[T]]) -> None:
        self._make = make
        self._items: AsyncIterator[T] | None = None

    async def next(self, client: Client) -> T | object:
        if self._items is None:
            self._items = self._make(client)
        return await anext(self._items, _END)

    async def close(self, _: Client) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


_END: Final = object()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
