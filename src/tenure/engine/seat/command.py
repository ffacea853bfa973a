"""The commands for seats, and their answers."""

from __future__ import annotations

import msgspec

from tenure.core.seat.record import Seat
from tenure.core.task.effect import Stop
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import Worker
from tenure.engine.claim.sink import Sink
from tenure.engine.command import Command, TaskRef


class SeatTaken(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A seat that this server has now, and what its worker holds according to the rows.

    ``unconfirmed`` ones were handed to it and are in no answer yet, ``cancel`` are to be cancelled.
    """

    seat: Seat
    worker: Worker
    lease: Lease
    held: frozenset[TaskRef]
    unconfirmed: tuple[TaskRef, ...]
    cancel: tuple[TaskRef, ...]
    taken_at_ms: int


class TakeSeat(Command[SeatTaken], frozen=True, gc=True, kw_only=True):
    """The server takes the seat of a worker, unless another one drives it.

    The offer of the worker begins without a window: before the first answer nothing is handed out.
    """

    namespace: str
    worker_id: str
    sink: Sink
    window: int = 0


class SetAnswer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What follows from a full set: what to stop, and what to cancel within its grace."""

    applied_at_ms: int
    stop: tuple[Stop, ...] = ()
    cancel: tuple[TaskRef, ...] = ()


class ApplySet(Command[SetAnswer], frozen=True, kw_only=True):
    """The full set in the answer of a served worker, as the owner of its seat got it.

    The worker runs ``running``, and has ended ``done``. The call ``carried`` attempts to it. What
    was confirmed until ``applied_at_ms``, when the last set was applied, is older than this answer.
    A ``session_no`` that is not the present one is refused: another server drives the worker.
    """

    namespace: str
    worker_id: str
    session_no: int
    applied_at_ms: int
    running: tuple[TaskRef, ...]
    done: tuple[TaskRef, ...] = ()
    carried: tuple[TaskRef, ...] = ()
