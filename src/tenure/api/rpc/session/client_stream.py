"""One stream of a client: the tasks it waits for, its enqueues, and what is not sent yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from tenure.api.guard.scope import scope
from tenure.api.rpc import error
from tenure.api.rpc.context import Context
from tenure.api.rpc.session.flush_delay import FlushDelay
from tenure.api.rpc.session.stream_enqueue import StreamEnqueue, refused
from tenure.api.rpc.view import task_view
from tenure.core.limits import FRAME_BYTES, STREAM_ENQUEUES_MAX, WATCHED_MAX
from tenure.core.task.record import Task
from tenure.engine.replica.result_watch import Listener, Result, ResultWatch
from tenure.errors import InvalidArgument, PayloadTooLarge
from tenure.v1 import task_service_pb2 as pb

# Results in one frame; more of them bring no gain.
_FRAME_ITEMS: Final = 500


class ClientStream:
    """Waits for tasks and writes their results in frames, in the order in which they end."""

    def __init__(
        self, results: ResultWatch, stream_enqueue: StreamEnqueue, context: Context
    ) -> None:
        """Start with no task."""
        self._results = results
        self._stream_enqueue = stream_enqueue
        self._context = context
        self._namespace = ""
        self._waited: dict[str, Listener] = {}
        self._ended: deque[tuple[str, Result]] = deque()
        self._enqueue_count = 0
        self._enqueue_places = asyncio.Semaphore(STREAM_ENQUEUES_MAX)
        self._answers: deque[pb.StreamedAnswer] = deque()
        self._wake = asyncio.Event()
        self._flush_delay = FlushDelay(self._wake)
        self._is_complete = False
        self._is_closing = False

    def close(self) -> None:
        """End the stream because the server stops: the client reconnects elsewhere."""
        self._is_closing = True
        self._wake.set()

    async def serve(self, requests: AsyncIterator[pb.WatchTasksRequest]) -> None:
        """Write results until the client has ended the stream and got the last one."""
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(requests, group))
                await self._write()
                reader.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            for task_id, listener in self._waited.items():
                self._results.unwatch((self._namespace, task_id), listener)

    async def _read(
        self, requests: AsyncIterator[pb.WatchTasksRequest], group: asyncio.TaskGroup
    ) -> None:
        async for request in requests:
            if not self._namespace:
                self._namespace = scope(request.namespace_id)
            self._check_namespace(request.namespace_id)
            for task_id in request.add:
                self._add(task_id)
            for task_id in request.remove:
                self._remove(task_id)
            for message in request.enqueues:
                self._check_namespace(message.request.namespace_id)
                await self._enqueue_places.acquire()
                self._enqueue_count += 1
                group.create_task(self._enqueue(message))
        self._is_complete = True
        self._wake.set()

    def _check_namespace(self, name: str) -> None:
        if name and scope(name) != self._namespace:
            message = "namespace_id must stay the same on one stream"
            raise InvalidArgument(message, field="namespaceId")

    async def _enqueue(self, message: pb.StreamedEnqueue) -> None:
        if self._is_closing:
            answer = refused(message, error.shutting_down("Enqueue elsewhere."))
        else:
            answer = await self._stream_enqueue.answer(self._namespace, message)
        if message.watch:
            for result in answer.response.results:
                if not result.HasField("error"):
                    self._add(result.task_id)
        self._answers.append(answer)
        self._enqueue_count -= 1
        if message.watch and self._is_waited(answer):
            # The client wants the result, and often it is only milliseconds away.
            self._flush_delay.begin()
        else:
            self._wake.set()

    def _is_waited(self, answer: pb.StreamedAnswer) -> bool:
        """Return whether an answer only says that one task is waited for."""
        results = answer.response.results
        return len(results) == 1 and results[0].task_id in self._waited

    def _add(self, task_id: str) -> None:
        if task_id in self._waited:
            return
        # Unwritten results count too: a client that does not read cannot request more.
        if len(self._waited) + len(self._ended) >= WATCHED_MAX:
            message = f"One stream waits for at most {WATCHED_MAX} tasks. Open another stream."
            raise PayloadTooLarge(message, limit=WATCHED_MAX)

        def listener(result: Result) -> None:
            self._waited.pop(task_id, None)
            self._ended.append((task_id, result))
            self._wake.set()

        self._results.watch((self._namespace, task_id), listener)
        self._waited[task_id] = listener

    def _remove(self, task_id: str) -> None:
        listener = self._waited.pop(task_id, None)
        if listener is not None:
            self._results.unwatch((self._namespace, task_id), listener)

    @property
    def _is_open(self) -> bool:
        return bool(
            self._waited
            or self._ended
            or self._answers
            or self._enqueue_count
            or not self._is_complete
        )

    async def _write(self) -> None:
        while self._is_open:
            # Accepted enqueues are answered first, so that nobody has to repeat them elsewhere.
            if self._is_closing and not self._enqueue_count and not self._answers:
                raise error.shutting_down("Watch the tasks elsewhere.")
            if self._ended or self._answers:
                await self._context.write(self._frame())
            else:
                self._wake.clear()
                await self._wake.wait()

    def _frame(self) -> pb.WatchTasksResponse:
        self._flush_delay.end()
        answers, self._answers = self._answers, deque()
        for _ in answers:
            # Not before: a client that does not read its answers cannot request more.
            self._enqueue_places.release()
        results: list[pb.TaskResult] = []
        size = 0
        while self._ended and size < FRAME_BYTES and len(results) < _FRAME_ITEMS:
            task_id, result = self._ended.popleft()
            if isinstance(result, Task):
                results.append(task_view.result(result))
                size += len(result.output or b"") + len(result.progress.details or b"")
            else:
                results.append(pb.TaskResult(task_id=task_id, refusal=error.detail(result)))
        return pb.WatchTasksResponse(answers=answers, results=results)


class ClientStreams:
    """The open streams of this server, to close them when it stops."""

    def __init__(self, results: ResultWatch, stream_enqueue: StreamEnqueue) -> None:
        """Start without any."""
        self._results = results
        self._stream_enqueue = stream_enqueue
        self._open: set[ClientStream] = set()

    async def serve(self, requests: AsyncIterator[pb.WatchTasksRequest], context: Context) -> None:
        """Serve one stream to its end."""
        stream = ClientStream(self._results, self._stream_enqueue, context)
        self._open.add(stream)
        try:
            await stream.serve(requests)
        finally:
            self._open.discard(stream)

    def close(self) -> None:
        """End all streams: their clients reconnect elsewhere."""
        for stream in self._open:
            stream.close()
