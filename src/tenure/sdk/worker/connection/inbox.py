"""What execution tells the connection, from any thread, in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tenure.v1 import task_pb2


class InboxReader(Protocol):
    """Who takes the reports, on the connection's loop."""

    def take_finish(self, finish: task_pb2.TaskFinish) -> None:
        """Keep the end of an attempt."""
        ...

    def take_beat(self, beat: task_pb2.TaskBeat) -> None:
        """Keep the heartbeat of an attempt."""
        ...

    def take_stuck(self, count: int) -> None:
        """Note how many abandoned threads there are."""
        ...

    def take_lag(self, milliseconds: int) -> None:
        """Note how far the user's loop is behind."""
        ...

    def look_up(self) -> None:
        """All of a batch was handed over."""
        ...


Put = Callable[[InboxReader], None]


class WorkerInbox:
    """The ``Reporter`` of execution: a queue, and one wake-up of the loop for all that is in it."""

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
        """Tell how many abandoned threads hold a slot."""
        self._put(lambda reader: reader.take_stuck(count))

    def loop_lag(self, milliseconds: int) -> None:
        """Tell how far the user's event loop is behind."""
        self._put(lambda reader: reader.take_lag(milliseconds))

    def _put(self, item: task_pb2.TaskFinish | task_pb2.TaskBeat | Put) -> None:
        self._items.append(item)
        # The reader clears the mark before it looks, so that nothing stays behind unseen.
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self.deliver)
            except RuntimeError:
                # The loop is closed: an abandoned thread came back after the worker's end.
                self._items.clear()

    def deliver(self) -> None:
        """Hand over what is there, in its order."""
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
