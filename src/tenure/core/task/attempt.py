"""An attempt: one hand-out of a task to a worker, how it can end and what that costs.

The attempt number is the fence: it increases by one with each hand-out and is never reused.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tenure.core.task.callback import CallbackAttempt
from tenure.core.task.retry import ErrorInfo


class Outcome(enum.StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    WORKER_LOST = "worker_lost"
    LOST_TASK = "lost_task"
    UNDELIVERED = "undelivered"
    RELEASED = "released"
    YIELDED = "yielded"
    # Yielded as well, and only a timer wakes it.
    SLEPT = "slept"
    PARKED = "parked"
    # A run has begun anew by itself.
    CONTINUED = "continued"
    CANCELLED = "cancelled"
    CANCEL_TIMEOUT = "cancel_timeout"

    # Enum's own hash is a Python function.
    __hash__ = str.__hash__


class Charge(enum.Enum):
    """Which limit counts an ended attempt."""

    NOTHING = enum.auto()
    RETRY_POLICY = enum.auto()
    INTERRUPTIONS = enum.auto()


CHARGES: Final[dict[Outcome, Charge]] = {
    Outcome.SUCCEEDED: Charge.NOTHING,
    Outcome.FAILED: Charge.RETRY_POLICY,
    Outcome.TIMED_OUT: Charge.RETRY_POLICY,
    Outcome.WORKER_LOST: Charge.INTERRUPTIONS,
    Outcome.LOST_TASK: Charge.INTERRUPTIONS,
    Outcome.UNDELIVERED: Charge.NOTHING,
    Outcome.RELEASED: Charge.NOTHING,
    Outcome.YIELDED: Charge.NOTHING,
    Outcome.SLEPT: Charge.NOTHING,
    Outcome.PARKED: Charge.NOTHING,
    Outcome.CONTINUED: Charge.NOTHING,
    Outcome.CANCELLED: Charge.NOTHING,
    Outcome.CANCEL_TIMEOUT: Charge.NOTHING,
}

YIELDS: Final = frozenset({Outcome.YIELDED, Outcome.SLEPT})
"""The run gave up its slot and goes on later; no record of the attempt is kept."""

UNRECORDED: Final = YIELDS | {Outcome.CONTINUED}
"""How attempts of runs end without a record: there may be one for each round of an endless run."""

EXPIRED: Final = frozenset({Outcome.TIMED_OUT, Outcome.WORKER_LOST, Outcome.LOST_TASK})
"""A heartbeat of an attempt that ended like this is answered ``task_expired``."""


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """The record of an ended attempt that was not its task's last one."""

    namespace: str
    task_id: str
    number: int
    outcome: Outcome
    worker_id: str | None
    handed_at_ms: int
    ended_at_ms: int
    state_after: str
    error: ErrorInfo | None = None
    callback: CallbackAttempt | None = None

    def __post_init__(self) -> None:
        """Check the invariants of an ended attempt."""
        assert self.number >= 1
        assert self.ended_at_ms >= 0
