"""The heartbeats of one attempt: accepted at any rate, sent only as often as necessary."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

from tenure.core import check
from tenure.core.limits import ERROR_MESSAGE_BYTES_MAX
from tenure.v1 import task_pb2

# A heartbeat may be a little late without a timeout.
_TIMEOUT_SHARE: Final = 0.8
_INTERVAL_S_MAX: Final = 30.0
# Progress is watched by people, so it is sent more often than a heartbeat has to be.
_PROGRESS_INTERVAL_S: Final = 1.0


def interval_of(task: task_pb2.AssignedTask) -> float:
    """Return how many seconds lie between two heartbeats that are sent."""
    if task.heartbeat_interval_ms:
        return task.heartbeat_interval_ms / 1_000
    if task.heartbeat_timeout_ms:
        return min(_TIMEOUT_SHARE * task.heartbeat_timeout_ms / 1_000, _INTERVAL_S_MAX)
    return _INTERVAL_S_MAX


class TaskHeartbeat:
    """The heartbeats of an attempt. The newest one waits until it may be sent.

    The activity reports in its own thread, and the connection's thread sends what waits. A lock
    keeps the order.
    """

    def __init__(
        self,
        task: task_pb2.AssignedTask,
        send: Callable[[task_pb2.TaskBeat], None],
        clock: Callable[[], float],
        interval_s: float | None = None,
    ) -> None:
        """Send for an attempt, each ``interval_s`` or as its timeout wants it."""
        self._task_id = task.task_id
        self._attempt = task.attempt
        self._interval_s = interval_of(task) if interval_s is None else interval_s
        self._send = send
        self._clock = clock
        self._lock = threading.Lock()
        self._sent_at_s = self._next_at_s = -math.inf
        self._is_waiting = False
        self._is_progress_waiting = False
        self._details: bytes | None = None
        self._percent: float | None = None
        self._message: str | None = None

    def beat(
        self, details: bytes | None, percent: float | None = None, message: str | None = None
    ) -> None:
        """Take a heartbeat of the activity; send it if the last one was sent long enough ago."""
        with self._lock:
            # A heartbeat may leave out progress or details, so the last known ones go with it.
            self._details = self._details if details is None else details
            self._percent = self._percent if percent is None else percent
            self._message = self._message if message is None else message
            interval_s = self._interval_s
            if percent is not None or message is not None:
                interval_s = min(interval_s, _PROGRESS_INTERVAL_S)
                self._is_progress_waiting = True
            due_at_s = self._sent_at_s + interval_s
            self._next_at_s = min(self._next_at_s, due_at_s) if self._is_waiting else due_at_s
            self._is_waiting = True
            self._send_if(is_due=self._clock() >= self._next_at_s)

    def tick(self) -> None:
        """Send the waiting heartbeat if it is time."""
        if self._is_waiting:
            with self._lock:
                self._send_if(is_due=self._clock() >= self._next_at_s)

    def flush(self) -> None:
        """Send the waiting heartbeat, because the attempt is about to end."""
        with self._lock:
            self._send_if(is_due=True)

    def flush_progress(self) -> None:
        """Send the waiting heartbeat if it has progress, which people may look at after the end."""
        with self._lock:
            self._send_if(is_due=self._is_progress_waiting)

    def _send_if(self, *, is_due: bool) -> None:
        if not (is_due and self._is_waiting):
            return
        self._is_waiting = self._is_progress_waiting = False
        self._sent_at_s = self._clock()
        self._send(
            task_pb2.TaskBeat(
                task_id=self._task_id,
                attempt=self._attempt,
                details=self._details,
                progress_percent=self._percent,
                message=self._message,
            )
        )


def check_beat(details: bytes | None, percent: float | None, message: str | None) -> None:
    """Raise here, in the activity, for values that the server would refuse later."""
    if details is not None:
        check.payload(details, "details")
    if percent is not None:
        check.number(percent, "percent", 0, 100)
    if message is not None:
        check.text(message, "message", bytes_max=ERROR_MESSAGE_BYTES_MAX)
