"""Results of tasks over one stream; over more of them only when a server's limit demands it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from tenure.core.limits import WATCHED_MAX
from tenure.errors import ERRORS, TenureError, Unavailable
from tenure.sdk.client.method import WATCH
from tenure.sdk.client.task_bytes import streamed_bytes
from tenure.sdk.transport import refusal
from tenure.sdk.transport.channel import TRY_SECONDS, Backoff, Channel, Stream
from tenure.v1 import task_service_pb2 as pb

# The server counts what it has not written yet as well, and what we do not want any more until it
# has read so.
STREAM_TASKS_MAX: Final = WATCHED_MAX // 2
# An open stream costs the server little, and opening one takes a while.
_IDLE_SECONDS: Final = 30.0

# A message that is too large for a server would end the stream for all who wait; a call would not.
_REQUEST_BYTES_MAX: Final = 64 * 1024
# An answer that takes longer may have been lost; a call has its own time.
_ANSWER_SECONDS: Final = TRY_SECONDS / 2
# Whoever enqueues again so soon gets a stream for it; a single task is not worth one.
_OFTEN_SECONDS: Final = 10.0

Waiter = asyncio.Future[pb.TaskResult]
_Asker = asyncio.Future[pb.EnqueueTasksResponse]
_Wire = Stream[bytes, pb.WatchTasksResponse]


class StreamBroken(Exception):
    """The stream ended before it had the answer; the request is sent as a single call."""

    def __init__(self, *, is_unsent: bool) -> None:
        """Say whether the request cannot have reached any server."""
        super().__init__()
        self.is_unsent = is_unsent


class TaskStreams:
    """The waits for tasks, and the streams that their results come on."""

    def __init__(self, channel: Channel, namespace: str) -> None:
        """Start with nobody waiting and no stream."""
        self._channel = channel
        self._namespace = namespace
        self._streams: list[_TaskStream] = []
        self._enqueued_at = -_OFTEN_SECONDS

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

    async def wait(self, task_id: str, waiter: Waiter | None = None) -> pb.TaskResult:
        """Return the result of a task when it has ended; wait for ever if it does not.

        The id must have the form of one: a bad id would end the stream for all. A ``waiter`` was
        given to ``enqueue`` before, and may have been told already.
        """
        if waiter is None:
            waiter = asyncio.get_running_loop().create_future()
        elif waiter.done():
            return waiter.result()
        stream = self._stream_for(task_id)
        if waiter not in stream.waiters.get(task_id, ()):
            stream.add(task_id, waiter)
        try:
            return await waiter
        finally:
            stream.drop(task_id, waiter)

    async def enqueue(
        self, request: bytes, *, timeout_s: float, waiters: Sequence[Waiter] = ()
    ) -> pb.EnqueueTasksResponse | None:
        """Send a request of ``request_bytes`` and return its answer; None if a call is better.

        With a waiter for each task the results are waited for from the answer on.
        """
        now = time.monotonic()
        before, self._enqueued_at = self._enqueued_at, now
        if len(request) > _REQUEST_BYTES_MAX:
            return None
        if not self._streams and now - before < _OFTEN_SECONDS:
            _TaskStream(self._channel, self._namespace, self._streams)
        if not self._streams or self._streams[0].problem is not None:
            return None
        stream = self._streams[0]
        if len(stream.waiters) + len(waiters) > STREAM_TASKS_MAX:
            waiters = ()
        return await stream.enqueue(request, waiters, min(timeout_s, _ANSWER_SECONDS))

    async def close(self) -> None:
        """End all streams; the waits for their results fail."""
        streams, self._streams = self._streams, []
        for stream in streams:
            await stream.close()

    def _stream_for(self, task_id: str) -> _TaskStream:
        free: _TaskStream | None = None
        for stream in self._streams:
            if task_id in stream.waiters:
                return stream
            if free is None and len(stream.waiters) < STREAM_TASKS_MAX:
                free = stream
        if free is None:
            free = _TaskStream(self._channel, self._namespace, self._streams)
        return free


class _TaskStream:
    """One stream, opened again when it breaks, with everything that is still waited for."""

    def __init__(self, channel: Channel, namespace: str, streams: list[_TaskStream]) -> None:
        """Open it; it takes itself out of ``streams`` when it has not been used for a while."""
        self.waiters: dict[str, list[Waiter]] = {}
        self.problem: TenureError | None = None
        self._channel = channel
        self._namespace = namespace
        self._streams = streams
        # Not sent yet; an id is in one of them at most.
        self._added: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._enqueues: list[bytes] = []
        self._askers: dict[int, tuple[_Asker, Sequence[Waiter]]] = {}
        self._number = 0
        self._wake = asyncio.Event()
        self._is_heard = False
        self._is_idle = False
        self._idling: asyncio.TimerHandle | None = None
        streams.append(self)
        self._running = asyncio.get_running_loop().create_task(self._run())

    def add(self, task_id: str, waiter: Waiter) -> None:
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
        self._keep()

    def drop(self, task_id: str, waiter: Waiter) -> None:
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
        self._let_idle()

    async def enqueue(
        self, request: bytes, waiters: Sequence[Waiter], timeout_s: float
    ) -> pb.EnqueueTasksResponse:
        """Return the answer to a request; when the stream breaks, there is none."""
        self._number = number = self._number + 1
        asker: _Asker = asyncio.get_running_loop().create_future()
        self._askers[number] = asker, waiters
        self._enqueues.append(streamed_bytes(number, request, watch=bool(waiters)))
        self._wake.set()
        self._keep()
        try:
            async with asyncio.timeout(timeout_s):
                return await asker
        except TimeoutError:
            # It is not used until something is heard on it again.
            message = f"The server has not answered within {timeout_s:g} s."
            self.problem = Unavailable(message, reason=refusal.BROKEN)
            raise StreamBroken(is_unsent=False) from None
        finally:
            self._askers.pop(number, None)
            self._let_idle()

    def _keep(self) -> None:
        self._is_idle = False
        if self._idling is not None:
            self._idling.cancel()
            self._idling = None

    def _let_idle(self) -> None:
        is_used = self.waiters or self._askers
        if not is_used and self._idling is None and not self._running.done():
            self._idling = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._retire)

    async def close(self) -> None:
        """End it; the waits for its results fail."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._fail(Unavailable("The client was closed.", reason="closed"))

    def _retire(self) -> None:
        self._idling = None
        if not self.waiters and not self._askers:
            self._is_idle = True
            self._wake.set()

    async def _run(self) -> None:
        backoff = Backoff()
        try:
            while not self._is_idle:
                try:
                    await self._serve()
                except TenureError as error:
                    self._leave(error)
                    if not ERRORS[error.code].is_retryable:
                        self._fail(error)
                        return
                    backoff = Backoff() if self._is_heard else backoff
                    self._is_heard = False
                    self.problem = error
                    if not self.waiters:
                        # Whoever needs it next opens another one.
                        return
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
        stream = self._channel.stream(WATCH)
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
        if not self._added and not self._removed and not self._enqueues:
            return
        head = pb.WatchTasksRequest(
            namespace_id=self._namespace, add=self._added, remove=self._removed
        )
        self._added, self._removed = {}, {}
        # Of the few that there are at a time each has a message of its own, but the first.
        first, self._enqueues = self._enqueues[:1], self._enqueues[1:]
        if self._enqueues:
            self._wake.set()
        await stream.write(b"".join((head.SerializeToString(), *first)))

    async def _read(self, stream: _Wire) -> None:
        while True:
            frame = await stream.read()
            if frame is None:
                raise Unavailable("The server ended the stream of results.", reason="broken")
            self._is_heard = True
            self.problem = None
            for answer in frame.answers:
                self._answer(answer)
            for result in frame.results:
                waiters = self.waiters.pop(result.task_id, None)
                if waiters is not None:
                    _tell(waiters, result)

    def _answer(self, answer: pb.StreamedAnswer) -> None:
        asker, waiters = self._askers.get(answer.number, (None, ()))
        # Results may follow in the same frame, before anybody else has seen the answer.
        for result, waiter in zip(answer.response.results, waiters, strict=False):
            if not result.HasField("error"):
                self._expect(result.task_id, waiter)
        if asker is None or asker.done():
            return
        if answer.HasField("refusal"):
            asker.set_exception(refusal.from_detail(answer.refusal))
        else:
            asker.set_result(answer.response)

    def _expect(self, task_id: str, waiter: Waiter) -> None:
        """Note who waits for a task that the server watches already."""
        self.waiters.setdefault(task_id, []).append(waiter)
        # Whoever enqueued it may have gone, or go before it has seen the answer.
        waiter.add_done_callback(partial(self.drop, task_id))

    def _leave(self, error: Exception) -> None:
        """Tell those who enqueue that they get no answer here."""
        self._enqueues = []
        is_unsent = isinstance(error, TenureError) and refusal.is_unsent(error)
        for asker, _ in self._askers.values():
            if not asker.done():
                asker.set_exception(StreamBroken(is_unsent=is_unsent))

    def _fail(self, error: Exception) -> None:
        self._leave(error)
        waiting, self.waiters = self.waiters, {}
        for waiters in waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(refusal.copied(error))


def _tell(waiters: Sequence[Waiter], result: pb.TaskResult) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if result.state:
            waiter.set_result(result)
        else:
            waiter.set_exception(refusal.from_detail(result.refusal))
