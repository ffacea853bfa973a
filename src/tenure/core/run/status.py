"""The status of a run, as clients see it: its state and, while it waits, for what."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Task, TaskState


class RunStatus(enum.StrEnum):
    """What a run does; the wire names are upper case."""

    PENDING = "pending"
    RUNNING = "running"
    # Only a timer wakes it.
    SLEEPING = "sleeping"
    WAITING = "waiting"
    # Its code does not fit its journal.
    PARKED = "parked"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StatusRows(msgspec.Struct, frozen=True, gc=False):
    """The stored rows that a status means: their states and, if it matters, the last outcome."""

    states: tuple[TaskState, ...]
    outcome: Outcome | None = None


ROWS: Final[dict[RunStatus, StatusRows]] = {
    RunStatus.PENDING: StatusRows((TaskState.PENDING,)),
    RunStatus.RUNNING: StatusRows((TaskState.DISPATCHED, TaskState.RUNNING)),
    RunStatus.SLEEPING: StatusRows((TaskState.WAITING,), Outcome.SLEPT),
    RunStatus.WAITING: StatusRows((TaskState.WAITING,), Outcome.YIELDED),
    RunStatus.PARKED: StatusRows((TaskState.WAITING,), Outcome.PARKED),
    RunStatus.PAUSED: StatusRows((TaskState.PAUSED,)),
    RunStatus.CANCELLING: StatusRows((TaskState.CANCELLING,)),
    RunStatus.COMPLETED: StatusRows((TaskState.SUCCEEDED,)),
    RunStatus.FAILED: StatusRows((TaskState.FAILED,)),
    RunStatus.CANCELLED: StatusRows((TaskState.CANCELLED,)),
}
_OF_ROW: Final = {
    (state, rows.outcome): status for status, rows in ROWS.items() for state in rows.states
}


def status_of(task: Task) -> RunStatus:
    """Return the status of a run."""
    return status_at(task.state, task.last_outcome)


def status_at(state: TaskState, outcome: Outcome | None) -> RunStatus:
    """Return the status of a run in a state; while it waits, its last outcome tells for what."""
    return _OF_ROW[state, outcome if state is TaskState.WAITING else None]
