"""A lane: takes all waiting commands, up to a bounded batch, and runs them as one transaction.

It never sleeps to grow a batch: a batch is what arrived while the previous one was committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import structlog

from tenure.core.limits import LANE_BYTES_MAX, NEW_WORK_SHARE_MAX, WORK_BATCH_BYTES_MAX
from tenure.errors import RateLimited, TenureError, Unavailable

C = TypeVar("C")
log = structlog.get_logger("tenure.engine")
Entry = tuple[C, "asyncio.Future[Any]"]
RETRY_AFTER_MS = 100
# Reports are accepted while new work is refused.
_ALL_BYTES_MAX = 2 * LANE_BYTES_MAX


class Lane(Generic[C]):
    """One queue of commands and the loop that runs them."""

    def __init__(
        self,
        run: Callable[[list[Entry[C]]], Awaitable[None]],
        *,
        batch_max: int,
        queue_max: int,
        weigh: Callable[[C], int],
        measure: Callable[[C], int] = lambda _: 0,
        mono_ms: Callable[[], int],
    ) -> None:
        """Run batches with ``run``; it answers every future of its batch.

        ``weigh`` returns the share of a command in a batch, ``measure`` the bytes of its payloads.
        """
        self._run = run
        self._mono_ms = mono_ms
        # (total position in the queue, instant): entries at this position or later came after it.
        self._marks: deque[tuple[int, int]] = deque([(0, 0)])
        self._taken_count = 0
        self.waiting_since_mono_ms = 0
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._new_work_max = queue_max * NEW_WORK_SHARE_MAX
        self._weigh = weigh
        self._measure = measure
        self._waiting_bytes = 0
        self._waiting: deque[Entry[C]] = deque()
        # The payload bytes of each waiting command, and its share of a batch: measured once.
        self._costs: deque[tuple[int, int]] = deque()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_running = False
        # (total position in the queue, callback when all before it was run).
        self._followers: deque[tuple[int, Callable[[], object]]] = deque()
        self.is_closed = False
        self.has_extra_work: Callable[[], bool] = lambda: False

    def __len__(self) -> int:
        """Return how many commands wait."""
        return len(self._waiting)

    def submit(self, command: C, *, is_new_work: bool = False) -> asyncio.Future[Any]:
        """Queue a command; a full queue refuses before accepting, new work first."""
        if self.is_closed:
            message = "The server is shutting down. Try again."
            raise Unavailable(message, reason="shutting_down", retry_after_ms=RETRY_AFTER_MS)
        waiting = self._waiting
        size = self._measure(command)
        waiting_bytes = self._waiting_bytes + size
        if len(waiting) >= (self._new_work_max if is_new_work else self._queue_max) or (
            waiting_bytes > (LANE_BYTES_MAX if is_new_work else _ALL_BYTES_MAX)
        ):
            message = "The server has too many requests. Try again soon."
            raise RateLimited(message, retry_after_ms=RETRY_AFTER_MS)
        loop = self._loop
        if loop is None:
            # Read once: each read is a system call.
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not waiting:
            self._mark()
            self._wake.set()
        waiting.append((command, future))
        weight = self._weigh(command)
        if size:
            # Large payloads take a larger share of a batch.
            weight = max(weight, size * self._batch_max // WORK_BATCH_BYTES_MAX)
        self._costs.append((size, weight))
        self._waiting_bytes = waiting_bytes
        return future

    def _mark(self) -> None:
        self._marks.append((self._taken_count + len(self._waiting), self._mono_ms()))

    def follow(self, call: Callable[[], object]) -> None:
        """Call back when everything that was submitted before has run; at once if nothing waits."""
        if not self._waiting and not self._is_running:
            call()
            return
        self._followers.append((self._taken_count + len(self._waiting), call))

    def kick(self) -> None:
        """Run a batch even if no command waits."""
        self._wake.set()

    def close(self) -> None:
        """Accept nothing more; waiting commands still run."""
        self.is_closed = True
        self._wake.set()

    async def serve(self) -> None:
        """Run batches until the lane is closed and empty."""
        while True:
            if not self._waiting and not self.has_extra_work():
                if self.is_closed:
                    return
                self._wake.clear()
                await self._wake.wait()
            batch = self._take()
            self._is_running = True
            try:
                await self._run(batch)
            except Exception:
                # A bug of ours fails this batch, never the lane; repeating is safe.
                log.exception("lane.failed", size=len(batch))
                self._fail(batch)
            self._is_running = False
            while self._followers and self._followers[0][0] <= self._taken_count:
                self._followers.popleft()[1]()

    def _fail(self, batch: list[Entry[C]]) -> None:
        message = "The server could not run the request because of an internal error. Try again."
        for _, future in batch:
            if not future.done():
                error = Unavailable(message, reason="internal", retry_after_ms=RETRY_AFTER_MS)
                future.set_exception(error)

    def _take(self) -> list[Entry[C]]:
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= self._taken_count:
            marks.popleft()
        # Nothing in this batch has waited for longer; one clock reading per batch is enough.
        self.waiting_since_mono_ms = marks[0][1]
        batch: list[Entry[C]] = []
        left, waiting, costs = self._batch_max, self._waiting, self._costs
        while waiting and left > 0:
            batch.append(waiting.popleft())
            size, weight = costs.popleft()
            left -= weight
            self._waiting_bytes -= size
        self._taken_count += len(batch)
        if waiting:
            self._mark()
        return batch


def resolve(future: asyncio.Future[object], answer: object) -> None:
    """Give a caller its answer, which may be an error; a caller that is gone gets none."""
    if future.done():
        return
    if isinstance(answer, TenureError):
        future.set_exception(answer)
    else:
        future.set_result(answer)
