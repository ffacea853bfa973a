"""Results of tasks over one stream; over more of them only when a server's limit demands it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tenure.core.limits import WATCHED_MAX
from tenure.errors import ERRORS, TenureError, Unavailable
from tenure.sdk import refusal
from tenure.sdk.client.method import WATCH
from tenure.sdk.link import Backoff, Link, Stream
from tenure.v1 import task_service_pb2 as pb

# The server counts what it has not written yet as well, and what we do not want any more until it
# has read so.
STREAM_TASKS_MAX: Final = WATCHED_MAX // 2
# An open stream costs the server little, and opening one takes a while.
_IDLE_SECONDS: Final = 30.0

_Waiter = asyncio.Future[pb.TaskResult]
_Wire = Stream[pb.WatchTasksRequest, pb.WatchTasksResponse]


class ResultStreams:
    """Who waits for which task."""

    def __init__(self, link: Link, namespace: str) -> None:
        """Start with nobody waiting and no stream."""
        self._link = link
        self._namespace = namespace
        self._streams: list[_ResultStream] = []

    @property
    def task_count(self) -> int:
        """How many tasks are waited for."""
        return sum(len(stream.waiters) for stream in self._streams)

    @property
    def stream_count(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    @property
    def problem(self) -> TenureError | None:
        """Why nothing comes at the moment, if that is known."""
        return next((each.problem for each in self._streams if each.problem is not None), None)

    async def wait(self, task_id: str) -> pb.TaskResult:
        """Return the result of a task when it has ended; wait for ever if it does not.

        The id must have the form of one: a bad id would end the stream for all.
        """
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        stream = self._stream_for(task_id)
        stream.add(task_id, waiter)
        try:
            return await waiter
        finally:
            stream.drop(task_id, waiter)

    async def close(self) -> None:
        """End all streams; whoever still waits is told."""
        streams, self._streams = self._streams, []
        for stream in streams:
            await stream.close()

    def _stream_for(self, task_id: str) -> _ResultStream:
        free: _ResultStream | None = None
        for stream in self._streams:
            if task_id in stream.waiters:
                return stream
            if free is None and len(stream.waiters) < STREAM_TASKS_MAX:
                free = stream
        if free is None:
            free = _ResultStream(self._link, self._namespace, self._streams)
        return free


class _ResultStream:
    """One stream, opened again when it breaks, with everything that is still waited for."""

    def __init__(self, link: Link, namespace: str, streams: list[_ResultStream]) -> None:
        """Open it; it takes itself out of ``streams`` when it has not been used for a while."""
        self.waiters: dict[str, list[_Waiter]] = {}
        self.problem: TenureError | None = None
        self._link = link
        self._namespace = namespace
        self._streams = streams
        # Not sent yet; an id is in one of them at most.
        self._added: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._is_heard = False
        self._is_idle = False
        self._idling: asyncio.TimerHandle | None = None
        streams.append(self)
        self._running = asyncio.get_running_loop().create_task(self._run())

    def add(self, task_id: str, waiter: _Waiter) -> None:
        """Tell ``waiter`` of the end of a task."""
        waiters = self.waiters.get(task_id)
        if waiters is not None:
            waiters.append(waiter)
            return
        self.waiters[task_id] = [waiter]
        if task_id in self._removed:
            # The server has not been told, so it still waits.
            del self._removed[task_id]
        else:
            self._added[task_id] = None
            self._wake.set()
        self._is_idle = False
        if self._idling is not None:
            self._idling.cancel()
            self._idling = None

    def drop(self, task_id: str, waiter: _Waiter) -> None:
        """Forget a waiter, and with the last one the task."""
        waiters = self.waiters.get(task_id)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self.waiters[task_id]
                if task_id in self._added:
                    del self._added[task_id]
                else:
                    self._removed[task_id] = None
                    self._wake.set()
        if not self.waiters and self._idling is None and not self._running.done():
            self._idling = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._retire)

    async def close(self) -> None:
        """End it; whoever still waits is told."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._fail(Unavailable("The client was closed.", reason="closed"))

    def _retire(self) -> None:
        self._idling = None
        if not self.waiters:
            self._is_idle = True
            self._wake.set()

    async def _run(self) -> None:
        backoff = Backoff()
        try:
            while not self._is_idle:
                try:
                    await self._serve()
                except TenureError as error:
                    if not ERRORS[error.code].is_retryable:
                        self._fail(error)
                        return
                    backoff = Backoff() if self._is_heard else backoff
                    self._is_heard = False
                    self.problem = error
                    backoff.warn(error, "Results are waited for.")
                    await asyncio.sleep(backoff.next_s(error))
        except Exception as error:  # noqa: BLE001 (whatever it is, those who wait are told)
            self._fail(error)
        finally:
            if self in self._streams:
                self._streams.remove(self)
            if self._idling is not None:
                self._idling.cancel()

    async def _serve(self) -> None:
        stream = self._link.stream(WATCH)
        reader = asyncio.get_running_loop().create_task(self._read(stream))
        reader.add_done_callback(lambda _: self._wake.set())
        try:
            self._added = dict.fromkeys(self.waiters)
            self._removed = {}
            while not self._is_idle and not reader.done():
                await self._write(stream)
                await self._wake.wait()
                self._wake.clear()
        except TenureError:
            # The reader knows better why the stream has ended.
            if not reader.done():
                raise
        finally:
            stream.cancel()
            if not reader.done():
                reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if not reader.cancelled():
            reader.result()

    async def _write(self, stream: _Wire) -> None:
        if not self._added and not self._removed:
            return
        request = pb.WatchTasksRequest(
            namespace_id=self._namespace, add=self._added, remove=self._removed
        )
        self._added, self._removed = {}, {}
        await stream.write(request)

    async def _read(self, stream: _Wire) -> None:
        while True:
            frame = await stream.read()
            if frame is None:
                raise Unavailable("The server ended the stream of results.", reason="broken")
            self._is_heard = True
            self.problem = None
            for result in frame.results:
                waiters = self.waiters.pop(result.task_id, None)
                if waiters is not None:
                    _tell(waiters, result)

    def _fail(self, error: Exception) -> None:
        waiting, self.waiters = self.waiters, {}
        for waiters in waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(refusal.copied(error))


def _tell(waiters: Sequence[_Waiter], result: pb.TaskResult) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if result.state:
            waiter.set_result(result)
        else:
            waiter.set_exception(refusal.from_detail(result.refusal))
