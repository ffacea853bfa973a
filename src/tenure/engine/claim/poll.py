"""A waiting poll as an offer: answered once, at the latest at its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tenure.core.journal.entry import JournalPage
from tenure.core.limits import POLL_BYTES_MAX
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task
from tenure.core.worker import decide as worker_rules
from tenure.core.worker.record import EndReason
from tenure.engine.command import TaskRef
from tenure.errors import TenureError


class Poll:
    """The sink of a poll; its future is the answer."""

    __slots__ = ("_deadline", "_future", "_wait_ms")
    room_bytes: Final = POLL_BYTES_MAX

    def __init__(self, future: asyncio.Future[object], wait_ms: int) -> None:
        """Answer ``future``."""
        self._future = future
        self._wait_ms = wait_ms
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the caller still waits."""
        return not self._future.done()

    def wait(self, on_end: Callable[[], None]) -> None:
        """Call back at the deadline, or when the caller disconnects."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._wait_ms / 1000, on_end)
        self._future.add_done_callback(lambda _: self._forget(on_end))

    def _forget(self, on_end: Callable[[], None]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._future.cancelled():
            on_end()

    def give(self, tasks: Sequence[Task]) -> None:
        """Answer with tasks; none at the deadline."""
        if not self._future.done():
            self._future.set_result(tuple(tasks))

    def fail(self, error: TenureError) -> None:
        """Answer with a refusal."""
        if not self._future.done():
            self._future.set_exception(error)

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """A poll carries no cancellations; the worker's heartbeat does."""

    def stop(self, stops: Sequence[Stop]) -> None:
        """A poll carries no stops; the worker's heartbeat does."""

    def page(self, ref: TaskRef, page: JournalPage) -> None:
        """A poll carries no entries of a journal; the worker asks for them."""

    def drain(self) -> None:
        """End at once: a draining worker gets nothing more."""
        self.give(())

    def end(self, reason: EndReason) -> None:
        """Refuse: the worker is offline."""
        self.fail(worker_rules.inactive("of this poll", reason).to_error())
