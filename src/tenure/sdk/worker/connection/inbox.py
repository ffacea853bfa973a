"""Reports of execution to the connection: from any thread, delivered in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from tenure.sdk.worker.executor_protocol import ChildReport, NumberedEntry, WantedPage
from tenure.v1 import task_pb2, workflow_service_pb2


class InboxReader(Protocol):
    """Takes the reports, on the connection's loop."""

    def take_finish(self, finish: task_pb2.TaskFinish) -> None:
        """Keep the end of an attempt."""
        ...

    def take_beat(self, beat: task_pb2.TaskBeat) -> None:
        """Keep the heartbeat of an attempt."""
        ...

    def take_stuck(self, count: int) -> None:
        """Record how many abandoned threads there are."""
        ...

    def take_lag(self, milliseconds: int) -> None:
        """Record the lag of the user's event loop."""
        ...

    def take_entries(self, entries: Sequence[NumberedEntry]) -> None:
        """Keep entries for the journals of runs."""
        ...

    def take_children(self, reports: Sequence[ChildReport]) -> None:
        """Keep what runs report of their children."""
        ...

    def take_fetch(self, wanted: WantedPage) -> None:
        """Keep a request of a run for a page."""
        ...

    def take_signal(
        self, run_id: str, signal: workflow_service_pb2.NewSignal, answer: Future[None]
    ) -> None:
        """Send a signal to a run."""
        ...

    def look_up(self) -> None:
        """Called after each batch."""
        ...


Put = Callable[[InboxReader], None]


class WorkerInbox:
    """The ``Reporter`` of execution: a queue that wakes the loop once for all its items."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reader: InboxReader) -> None:
        """Deliver to ``reader`` on ``loop``."""
        self._loop = loop
        self._reader = reader
        self._items: deque[task_pb2.TaskFinish | task_pb2.TaskBeat | Put] = deque()
        self._is_woken = False

    def finish(self, finish: task_pb2.TaskFinish) -> None:
        """Report the end of an attempt."""
        self._put(finish)

    def beat(self, beat: task_pb2.TaskBeat) -> None:
        """Report progress of an attempt."""
        self._put(beat)

    def stuck(self, count: int) -> None:
        """Report how many abandoned threads use a slot."""
        self._put(lambda reader: reader.take_stuck(count))

    def loop_lag(self, milliseconds: int) -> None:
        """Report the lag of the user's event loop."""
        self._put(lambda reader: reader.take_lag(milliseconds))

    def record(self, entries: Sequence[NumberedEntry]) -> None:
        """Have entries recorded in the journals of runs."""
        self._put(lambda reader: reader.take_entries(entries))

    def report_children(self, reports: Sequence[ChildReport]) -> None:
        """Have children of runs stored, or asked to end."""
        self._put(lambda reader: reader.take_children(reports))

    def fetch(self, wanted: WantedPage) -> None:
        """Ask for a part of what the server has of a run."""
        self._put(lambda reader: reader.take_fetch(wanted))

    def signal(self, run_id: str, signal: workflow_service_pb2.NewSignal) -> Future[None]:
        """Send a signal to a run."""
        answer: Future[None] = Future()
        self._put(lambda reader: reader.take_signal(run_id, signal, answer))
        return answer

    def _put(self, item: task_pb2.TaskFinish | task_pb2.TaskBeat | Put) -> None:
        self._items.append(item)
        # The reader clears this flag before it reads the queue, so no item is missed.
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self.deliver)
            except RuntimeError:
                # The loop is closed: an abandoned thread ended after the worker.
                self._items.clear()

    def deliver(self) -> None:
        """Deliver the items in their order."""
        self._is_woken = False
        items, reader = self._items, self._reader
        for _ in range(len(items)):
            item = items.popleft()
            if isinstance(item, task_pb2.TaskFinish):
                reader.take_finish(item)
            elif isinstance(item, task_pb2.TaskBeat):
                reader.take_beat(item)
            else:
                item(reader)
        reader.look_up()
