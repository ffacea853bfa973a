"""The result of a decision about a task: the new task, entries, effects after the commit."""

from __future__ import annotations

import enum

import msgspec

from tenure.core.journal.entry import NewEntry
from tenure.core.task.attempt import Attempt
from tenure.core.task.record import Task


class WakeQueue(msgspec.Struct, frozen=True, gc=False):
    """Effect: work is ready in a queue; serve the offers that wait for it."""

    namespace: str
    queue: str


class TellCancel(msgspec.Struct, frozen=True, gc=False):
    """Effect: send the worker a cancel for the task that it runs."""

    worker_id: str
    task_id: str
    attempt: int


class StopCause(enum.StrEnum):
    """Why an attempt ended although its worker did not end it. The words are those of the wire."""

    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    LOST_LEASE = "lost_lease"


class Stop(msgspec.Struct, frozen=True, gc=False):
    """An attempt that a worker has to stop."""

    task_id: str
    attempt: int
    cause: StopCause


class TellStop(msgspec.Struct, frozen=True, gc=False):
    """Effect: send the worker a stop for an attempt that it may run; a row until it is sent."""

    worker_id: str
    stop: Stop


class TellFreed(msgspec.Struct, frozen=True, gc=False):
    """Effect: the process behind an endpoint has ended an attempt; the endpoint has a free slot."""

    worker_id: str


class TellRun(msgspec.Struct, frozen=True, gc=False):
    """Effect: send the worker that holds a run what others have appended to its journal."""

    worker_id: str
    namespace: str
    task_id: str
    attempt: int


Effect = WakeQueue | TellCancel | TellStop | TellFreed | TellRun


class Decision(msgspec.Struct, frozen=True, gc=False):
    """How an accepted event changes a task, and what it causes elsewhere.

    ``entries`` go to the end of the journal of a run, in the same transaction.
    """

    task: Task
    ended: Attempt | None = None
    effects: tuple[Effect, ...] = ()
    entries: tuple[NewEntry, ...] = ()
