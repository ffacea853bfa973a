"""Exclusive attempts of a worker: which wait for the server's permission, and when they must stop.

Each instant counts from the moment in which an accepted report was *sent*. So the server gives an
exclusive attempt to another worker at least a second later. Pure: nothing here waits or sends.
"""

from __future__ import annotations

import math
from collections import deque

import msgspec

from tenure.v1 import task_pb2

Ref = tuple[str, int]
"""(task id, attempt)"""


class _Run(msgspec.Struct, eq=False):
    """One exclusive attempt: when accepted reports of it were sent."""

    task: task_pb2.AssignedTask
    # When permission to start was last requested; its time runs from there.
    asked_at_s: float = math.inf
    heard_at_s: float = math.inf
    # Heartbeats that nobody has answered yet, in their order.
    beats_at_s: deque[float] = msgspec.field(default_factory=deque)
    is_running: bool = False

    @property
    def fence_at_s(self) -> float:
        """When it must stop if no answer comes: at the first of its timeouts."""
        task = self.task
        at_s = math.inf
        if task.start_to_close_ms:
            at_s = self.asked_at_s + task.start_to_close_ms / 1_000
        if task.heartbeat_timeout_ms:
            at_s = min(at_s, self.heard_at_s + task.heartbeat_timeout_ms / 1_000)
        return at_s


class Exclusives:
    """All exclusive attempts of one incarnation that have not ended."""

    def __init__(self) -> None:
        self._runs: dict[Ref, _Run] = {}

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._runs

    def is_asked(self, ref: Ref) -> bool:
        """Return whether an attempt waits for the server's permission to start."""
        run = self._runs.get(ref)
        return run is not None and not run.is_running

    def ask(self, ref: Ref, task: task_pb2.AssignedTask) -> None:
        """Let an attempt wait for the server's permission to start."""
        self._runs[ref] = _Run(task)

    def asked(self) -> list[Ref]:
        """Return the attempts that wait for the server's permission to start."""
        return [ref for ref, run in self._runs.items() if not run.is_running]

    def sent(self, ref: Ref, now_s: float) -> None:
        """Record when the server was asked."""
        run = self._runs[ref]
        if not run.is_running:
            run.asked_at_s = now_s

    def accept(self, ref: Ref, now_s: float) -> bool:
        """Take the server's permission; False if it came too late and must be requested again."""
        run = self._runs[ref]
        run.heard_at_s = run.asked_at_s
        run.is_running = now_s < run.fence_at_s
        return run.is_running

    def beat_sent(self, ref: Ref, now_s: float) -> None:
        """Record when a heartbeat of an attempt was sent."""
        run = self._runs.get(ref)
        if run is not None:
            run.beats_at_s.append(now_s)

    def beat_accepted(self, ref: Ref) -> None:
        """Record that the oldest unanswered heartbeat of an attempt has counted."""
        run = self._runs.get(ref)
        if run is not None and run.beats_at_s:
            run.heard_at_s = max(run.heard_at_s, run.beats_at_s.popleft())

    def beat_refused(self, ref: Ref) -> None:
        """Record that the oldest unanswered heartbeat of an attempt has not counted."""
        run = self._runs.get(ref)
        if run is not None and run.beats_at_s:
            run.beats_at_s.popleft()

    def beat_unanswered(self, ref: Ref) -> None:
        """Forget the newest heartbeat of an attempt, which is sent again."""
        run = self._runs.get(ref)
        if run is not None and run.beats_at_s:
            run.beats_at_s.pop()

    def disconnected(self) -> None:
        """Forget the unanswered heartbeats, which are sent again."""
        for run in self._runs.values():
            run.beats_at_s.clear()

    def drop(self, ref: Ref) -> None:
        """Forget an attempt that is over."""
        self._runs.pop(ref, None)

    def fence_at_s(self) -> float:
        """Return when the first running attempt must stop."""
        return min(
            (each.fence_at_s for each in self._runs.values() if each.is_running), default=math.inf
        )

    def overdue(self, now_s: float) -> list[Ref]:
        """Return the attempts that must stop now."""
        return [
            ref for ref, run in self._runs.items() if run.is_running and run.fence_at_s <= now_s
        ]

    @property
    def is_any_running(self) -> bool:
        """Return whether an exclusive attempt runs."""
        return any(each.is_running for each in self._runs.values())
