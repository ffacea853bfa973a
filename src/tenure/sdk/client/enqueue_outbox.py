"""Combines enqueues: tasks that arrive while a request is in flight go into the next one."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from tenure.core.limits import BULK_ENQUEUE_MAX, REQUEST_BYTES_MAX
from tenure.errors import ERRORS, PayloadTooLarge, TenureError, Unavailable
from tenure.sdk.client.method import ENQUEUE
from tenure.sdk.client.task_bytes import request_bytes
from tenure.sdk.client.task_stream import StreamBroken, TaskStreams, Waiter
from tenure.sdk.transport import refusal
from tenure.sdk.transport.channel import LAST_TRY_SECONDS, Backoff, Channel
from tenure.sdk.transport.refusal import copied
from tenure.v1 import task_service_pb2 as pb

# Room for the fields around the tasks.
BODY_BYTES_MAX: Final = REQUEST_BYTES_MAX - 16 * 1024
# How many requests may run beside one that is being repeated.
_REQUESTS_MAX: Final = 4
# A task that has waited for long is still tried at least once.
_SECONDS_MIN: Final = 1.0


class _Item:
    """A task to enqueue; ``future`` gets its id, or that of the first task with its key."""

    __slots__ = ("asked_at", "body", "future", "waiter")

    def __init__(self, body: bytes, future: asyncio.Future[str], waiter: Waiter | None) -> None:
        self.body = body
        self.future = future
        self.waiter = waiter
        self.asked_at = time.monotonic()


class EnqueueOutbox:
    """Sends several tasks in one request; each task has its own answer."""

    def __init__(
        self, channel: Channel, streams: TaskStreams, namespace: str, timeout_s: float
    ) -> None:
        """Start empty; after ``timeout_s`` a task fails."""
        self._channel = channel
        self._streams = streams
        self._namespace = namespace
        self._timeout_s = timeout_s
        self._waiting: deque[_Item] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        # Whether a request is in flight that has not been repeated.
        self._is_sending = False
        self._is_closed = False

    async def send(self, body: bytes, waiter: Waiter | None = None) -> str:
        """Enqueue one task of ``task_bytes``; return its id, or that of the first with its key.

        A ``waiter`` may be told of the result without having asked for it; see ``TaskStreams``.
        """
        check_size(body)
        if self._is_closed:
            raise RuntimeError("The client was closed. Make a new one.")
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Item(body, future, waiter))
        self._go_on()
        return await future

    async def close(self) -> None:
        """Give up what has not been answered."""
        self._is_closed = True
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        _fail(list(self._waiting), Unavailable("The client was closed.", reason="closed"))
        self._waiting.clear()

    def next_turn(self) -> None:
        """Let the next request go: the one in flight has ended, or is repeated."""
        self._is_sending = False
        self._go_on()

    def _go_on(self) -> None:
        is_free = not self._is_sending and len(self._requests) < _REQUESTS_MAX
        if self._waiting and is_free and not self._is_closed:
            self._is_sending = True
            request = asyncio.get_running_loop().create_task(self._deliver())
            self._requests.add(request)

    async def _deliver(self) -> None:
        # Taken now, not when this was started: whoever asked in the same turn comes along.
        items = self._take()
        turn = _Turn(self)
        try:
            if items:
                await self._send(items, turn)
        except Exception as error:  # noqa: BLE001 (whatever it is, those who wait are told)
            _fail(items, error)
        except asyncio.CancelledError:
            _fail(items, Unavailable("The client was closed.", reason="closed"))
            raise
        finally:
            current = asyncio.current_task()
            assert current is not None
            self._requests.discard(current)
            turn.give()
            self._go_on()

    def _take(self) -> list[_Item]:
        items: list[_Item] = []
        size = 0
        while self._waiting and len(items) < BULK_ENQUEUE_MAX:
            size += len(self._waiting[0].body)
            if items and size > BODY_BYTES_MAX:
                break
            item = self._waiting.popleft()
            # The caller may have been cancelled.
            if not item.future.done():
                items.append(item)
        return items

    async def _send(self, items: list[_Item], turn: _Turn) -> None:
        deadline = items[0].asked_at + self._timeout_s
        backoff = Backoff()
        is_resend = False
        while True:
            problem: TenureError | None
            try:
                answer = await self._ask(items, turn, deadline, is_resend=is_resend)
                items, problem = _settle(items, answer)
            except PayloadTooLarge:
                # Together they are too much for this server; alone each has its own answer.
                if len(items) == 1:
                    raise
                half = len(items) // 2
                for some in (items[:half], items[half:]):
                    await self._send_part(some, turn)
                return
            except TenureError as error:
                if not ERRORS[error.code].is_retryable:
                    raise
                problem = error
            if problem is None:
                return
            is_resend = is_resend or not refusal.is_unsent(problem)
            turn.give()
            pause_s = backoff.next_s(problem)
            # A call that has used up its time leaves as much as it needs for its own last try.
            if time.monotonic() + pause_s + LAST_TRY_SECONDS > deadline:
                raise problem
            await asyncio.sleep(pause_s)

    async def _send_part(self, items: list[_Item], turn: _Turn) -> None:
        try:
            await self._send(items, turn)
        except TenureError as error:
            _fail(items, error)

    async def _ask(
        self, items: Sequence[_Item], turn: _Turn, deadline: float, *, is_resend: bool
    ) -> pb.EnqueueTasksResponse:
        def request(*, is_resend: bool) -> bytes:
            bodies = [item.body for item in items]
            return request_bytes(self._namespace, bodies, independent=True, is_resend=is_resend)

        def again() -> bytes:
            turn.give()
            return request(is_resend=True)

        timeout_s = max(deadline - time.monotonic(), min(_SECONDS_MIN, self._timeout_s))
        first = request(is_resend=is_resend)
        if not is_resend:
            waiters = _waiters(items)
            if len(waiters) == 1:
                # Its answer may come with the result, and nobody else waits for that.
                turn.give()
            try:
                answer = await self._streams.enqueue(first, timeout_s=timeout_s, waiters=waiters)
            except StreamBroken as broken:
                if not broken.is_unsent:
                    first = again()
            else:
                if answer is not None:
                    return answer
            timeout_s = max(deadline - time.monotonic(), min(_SECONDS_MIN, self._timeout_s))
        return await self._channel.call(
            ENQUEUE, first, timeout_s=timeout_s, again=again, since=items[0].asked_at
        )


class _Turn:
    """The right of one request to be the one that others wait for; given up when it repeats."""

    def __init__(self, outbox: EnqueueOutbox) -> None:
        self._outbox = outbox
        self._is_given = False

    def give(self) -> None:
        if not self._is_given:
            self._is_given = True
            self._outbox.next_turn()


def check_size(body: bytes) -> None:
    """Refuse a task that is too large for a request."""
    if len(body) > BODY_BYTES_MAX:
        message = (
            f"The task has {len(body)} bytes, and a request has room for {BODY_BYTES_MAX}. "
            "Store the data elsewhere and send a reference."
        )
        raise PayloadTooLarge(message, limit=BODY_BYTES_MAX)


def _waiters(items: Sequence[_Item]) -> list[Waiter]:
    """Return who waits for the results, if all callers do."""
    found = [item.waiter for item in items if item.waiter is not None]
    return found if len(found) == len(items) else []


def _settle(
    items: Sequence[_Item], answer: pb.EnqueueTasksResponse
) -> tuple[list[_Item], TenureError | None]:
    """Resolve the futures; return the tasks to send again, and why."""
    undecided: list[_Item] = []
    problem: TenureError | None = None
    for item, result in zip(items, answer.results, strict=True):
        if not result.HasField("error"):
            if not item.future.done():
                item.future.set_result(result.task_id)
            continue
        error = refusal.from_detail(result.error)
        if ERRORS[error.code].is_retryable:
            undecided.append(item)
            problem = error
        elif not item.future.done():
            item.future.set_exception(error)
    return undecided, problem


def _fail(items: Sequence[_Item], error: Exception) -> None:
    for item in items:
        if not item.future.done():
            item.future.set_exception(copied(error))
