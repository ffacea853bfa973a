"""The interface for measuring an engine: called per batch, never per command.

The results of a batch are added up once, after its commit, when nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

import msgspec

from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Task, TaskState
from tenure.engine.batch.run import Committed
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.latencies import Latencies
from tenure.engine.run.run_tally import RunTally
from tenure.engine.schedule.fire_tally import FireTally
from tenure.errors import Rejection, TenureError
from tenure.store.transaction import LaneName

K = TypeVar("K")


class Occupancy(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What waits in the memory of an engine now."""

    work_command_count: int
    heartbeat_command_count: int
    session_count: int
    poll_count: int


class Meter(Protocol):
    """The receiver of measurements."""

    def now(self) -> float:
        """Return seconds of a clock that only this meter uses."""
        ...

    def ran(self, lane: LaneName, size: int, began: float) -> None:
        """Note a batch of ``size`` commands that began at ``now() == began`` and has ended."""
        ...

    def committed(self, committed: Committed) -> None:
        """Note what a batch of the work lane did."""
        ...

    def refused(self, answers: Iterable[object]) -> None:
        """Note the refusals among the answers of a batch of the heartbeat lane."""
        ...

    def lost(self, reason: str) -> None:
        """Note that a batch was lost with the store."""
        ...


class NullMeter:
    """Measures nothing."""

    def now(self) -> float:
        """Return a constant time."""
        return 0.0

    def ran(self, lane: LaneName, size: int, began: float) -> None:
        """Do nothing."""

    def committed(self, committed: Committed) -> None:
        """Do nothing."""

    def refused(self, answers: Iterable[object]) -> None:
        """Do nothing."""

    def lost(self, reason: str) -> None:
        """Do nothing."""


NULL_METER: Final = NullMeter()


class Tally:
    """The results of all batches, in numbers that only increase. Each batch adds to them."""

    def __init__(self) -> None:
        """Start with zeros."""
        self.start = Latencies()
        self.run = Latencies()
        self.enqueued_count = 0
        self.handed_out_count = 0
        self.finished: dict[TaskState, int] = {}
        self.ended: dict[Outcome, int] = {}
        self.refused: dict[str, int] = {}
        self.runs = RunTally()
        self.fires = FireTally()

    def add(self, committed: Committed) -> None:
        """Add what a batch did."""
        ws = committed.ws
        if ws.tasks.new:
            self.enqueued_count += len(ws.tasks.new)
        if committed.claims.assigned:
            self._add_started(committed)
        if ws.tasks.changed or ws.attempts.new:
            self._add_ended(ws)
        if ws.rows.has_schedules:
            self.fires.add(ws.schedules)
        if ws.rows.has_reports:
            self.runs.add_steps(ws)
        if committed.claims.has_runs:
            self.runs.add_hand_outs([task for task, _ in committed.claims.assigned])
        self.add_refused(committed.answers)
        if committed.claims.refused:
            self.add_refused(committed.claims.refused.values())

    def _add_started(self, committed: Committed) -> None:
        assigned = committed.claims.assigned
        self.handed_out_count += len(assigned)
        latencies = []
        for task, _ in assigned:
            # A task that kept its place in the line became ready later than its place shows.
            ready_at_ms = task.progress.ready_at_ms
            run_at_ms = task.run_at_ms
            if run_at_ms > ready_at_ms:  # noqa: PLR1730 (max() costs three times as much)
                ready_at_ms = run_at_ms
            latencies.append(task.handed_at_ms - ready_at_ms)
        self.start.add(latencies)

    def _add_ended(self, ws: WorkingSet) -> None:
        """Add finished tasks and ended attempts; the last attempt of a task ends with it."""
        loaded = ws.tasks.loaded
        states: list[TaskState] = []
        outcomes: list[Outcome] = []
        latencies: list[int] = []
        for key, task in ws.tasks.changed.items():
            finished_at_ms = task.finished_at_ms
            if finished_at_ms is not None:
                states.append(task.state)
                if task.link is not None:
                    self.runs.add_end(ws.journals, key)
                if task.last_outcome is not None and _was_live(loaded.get(key)):
                    outcomes.append(task.last_outcome)
                    latencies.append(finished_at_ms - task.handed_at_ms)
        for attempt in ws.attempts.new.values():
            outcomes.append(attempt.outcome)
            latencies.append(attempt.ended_at_ms - attempt.handed_at_ms)
        _add_each(self.finished, states)
        _add_each(self.ended, outcomes)
        self.run.add(latencies)

    def add_refused(self, answers: Iterable[object]) -> None:
        """Add refusals of commands and of the items of commands."""
        for answer in answers:
            if type(answer) is tuple:
                for item in answer:
                    if type(item) is Rejection:
                        self.refused[item.code] = self.refused.get(item.code, 0) + 1
            elif isinstance(answer, TenureError):
                self.refused[answer.code] = self.refused.get(answer.code, 0) + 1


def _was_live(task: Task | None) -> bool:
    return task is not None and (task.worker_id is not None or task.is_attempt_live)


def _add_each(counts: dict[K, int], keys: list[K]) -> None:
    """Count keys; a batch has few different ones."""
    if keys and keys.count(keys[0]) == len(keys):
        counts[keys[0]] = counts.get(keys[0], 0) + len(keys)
        return
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
