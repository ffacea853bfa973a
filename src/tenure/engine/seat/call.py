"""What the driver of a seat and its worker say to each other, and the seam to the network."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tenure.core.limits import HELD_SET_MAX
from tenure.core.seat.kill import Kill
from tenure.core.seat.record import Seat
from tenure.core.task.record import Task
from tenure.core.worker.record import EndReason
from tenure.engine.check import check_refs
from tenure.engine.command import TaskRef
from tenure.engine.task.command import Finish, ItemAnswer, TaskBeat
from tenure.errors import TenureError


class CallFailed(Exception):
    """A call has no answer that counts; the message is for the operator, without payloads."""


class Ack(msgspec.Struct, frozen=True):
    """The answer to a completion, or to the confirmation of an exclusive attempt."""

    ref: TaskRef
    answer: ItemAnswer | TenureError
    is_finish: bool


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call to a served worker; ``answered_no`` is the last one whose answer renewed the lease.

    A draining worker has ``drain_in_ms``, an ended one ``end``; nothing follows then.
    """

    worker_id: str
    namespace: str
    server_id: str
    session_no: int
    call_no: int
    answered_no: int
    lease_ms: int
    interval_ms: int
    tasks: tuple[Task, ...] = ()
    kills: tuple[Kill, ...] = ()
    acks: tuple[Ack, ...] = ()
    drain_in_ms: int | None = None
    end: EndReason | None = None


class CallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a worker. ``exclusive`` ones of ``running`` wait for their confirmation.

    ``bad`` are completions that cannot be read, each with the reason for its worker.
    """

    worker_id: str
    call_no: int
    running: tuple[TaskRef, ...] = ()
    exclusive: frozenset[TaskRef] = frozenset()
    finished: tuple[Finish, ...] = ()
    bad: tuple[tuple[TaskRef, TenureError], ...] = ()
    beats: tuple[TaskBeat, ...] = ()
    total_completed: int = 0
    total_failed: int = 0
    active_count: int = 0
    loop_lag_ms: int = 0
    stuck_count: int = 0
    window: int = 0
    is_full: bool = False
    has_more: bool = False

    @property
    def done(self) -> tuple[TaskRef, ...]:
        """Return the attempts that it reports as ended."""
        ended = tuple(TaskRef(each.task_id, each.attempt) for each in self.finished)
        return (*ended, *(ref for ref, _ in self.bad))


class Caller(Protocol):
    """How served workers are reached."""

    async def call(self, seat: Seat, call: Call) -> CallAnswer:
        """Call a worker and return its answer; raise if there is none."""
        ...

    async def forget(self, worker_id: str) -> None:
        """Close what is open to a worker: this server does not drive it any more."""
        ...


_COUNT_MAX = 2**63 - 1
_SMALL_MAX = 2**31 - 1


def check_answer(call: Call, answer: CallAnswer) -> None:
    """Raise if an answer is not that of the called worker, or is above a limit."""
    if answer.worker_id != call.worker_id:
        raise CallFailed(f"Another worker answered: {answer.worker_id[:64]!r}.")
    if answer.call_no != call.call_no:
        raise CallFailed(f"The answer is to call {answer.call_no}, not to {call.call_no}.")
    for name, refs in (
        ("running_tasks", answer.running),
        ("completed_tasks", answer.done),
        ("task_beats", answer.beats),
    ):
        if len(refs) > HELD_SET_MAX:
            raise CallFailed(f"{name} has more than {HELD_SET_MAX} entries.")
        check_refs(call.namespace, call.worker_id, refs)
    for name, value, most in (
        ("total_completed", answer.total_completed, _COUNT_MAX),
        ("total_failed", answer.total_failed, _COUNT_MAX),
        ("active_count", answer.active_count, _SMALL_MAX),
        ("loop_lag_ms", answer.loop_lag_ms, _SMALL_MAX),
        ("stuck_count", answer.stuck_count, _SMALL_MAX),
        ("window", answer.window, _SMALL_MAX),
    ):
        if not 0 <= value <= most:
            raise CallFailed(f"{name} must be from 0 to {most}.")
