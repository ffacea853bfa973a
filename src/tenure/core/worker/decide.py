"""The worker machine: one incarnation of a ``Worker`` object, from registration to its end.

The status is stored; offline is terminal. In the words of the heartbeat protocol ACTIVE is
online or draining, INACTIVE is offline. The lease says whether the worker is alive.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from tenure.core.limits import DRAIN_DEADLINE_MS
from tenure.core.worker.record import DRIVEN, EndReason, Worker, WorkerStatus
from tenure.errors import Rejection

OTHER_KEY: Final = "other_key"
"""Why a call for a worker is refused that belongs to another API key; the worker stays active."""


class DrainRequested(msgspec.Struct, frozen=True, gc=False):
    """The worker shall finish what it holds and get nothing new."""

    deadline_ms: int = DRAIN_DEADLINE_MS


class SessionOpened(msgspec.Struct, frozen=True, gc=False):
    """The worker opened a stream; earlier ones no longer count.

    ``session_no`` is the worker's own count of its streams: it
    distinguishes an old stream that arrives late from the present one. 0 means that the worker
    does not count.
    """

    session_no: int = 0


class WorkerEnded(msgspec.Struct, frozen=True, gc=False):
    """The incarnation has ended."""

    reason: EndReason


class KeyChanged(msgspec.Struct, frozen=True, gc=False):
    """The worker registered again with another API key and belongs to that key now."""

    key_id: str


class HeldReleased(msgspec.Struct, frozen=True, gc=False):
    """A batch found no more tasks of the offline worker."""


WorkerEvent = DrainRequested | SessionOpened | KeyChanged | WorkerEnded | HeldReleased


class TellDrain(msgspec.Struct, frozen=True, gc=False):
    """Effect: send the worker a drain, and end its waiting polls."""

    worker_id: str


class TellEnded(msgspec.Struct, frozen=True, gc=False):
    """Effect: the server with this worker's session or poll sends it the end."""

    worker_id: str
    reason: EndReason


class ReleaseHeld(msgspec.Struct, frozen=True, gc=False):
    """Effect: put back the worker's tasks now, not only in the next round."""

    worker_id: str


WorkerEffect = TellDrain | TellEnded | ReleaseHeld


class WorkerDecision(msgspec.Struct, frozen=True, gc=False):
    """How an accepted event changes a worker."""

    worker: Worker
    effects: tuple[WorkerEffect, ...] = ()


class WorkerRule(msgspec.Struct, frozen=True, gc=False):
    """From which status an event is accepted, and to which it may lead."""

    sources: frozenset[WorkerStatus]
    targets: frozenset[WorkerStatus]


_ON, _DRAIN, _OFF = WorkerStatus.ONLINE, WorkerStatus.DRAINING, WorkerStatus.OFFLINE


_ACTIVE: Final = frozenset({_ON, _DRAIN})


RULES: Final[dict[type[WorkerEvent], WorkerRule]] = {
    DrainRequested: WorkerRule(_ACTIVE, frozenset({_DRAIN})),
    SessionOpened: WorkerRule(_ACTIVE, _ACTIVE),
    KeyChanged: WorkerRule(_ACTIVE, _ACTIVE),
    WorkerEnded: WorkerRule(_ACTIVE, frozenset({_OFF})),
    HeldReleased: WorkerRule(frozenset({_OFF}), frozenset({_OFF})),
}


def decide(worker: Worker, event: WorkerEvent, now_ms: int) -> WorkerDecision | Rejection:
    """Return how ``event`` changes ``worker``, or why it is refused."""
    if worker.status not in RULES[type(event)].sources:
        return _refuse(worker, event)
    if isinstance(event, SessionOpened) and 0 < event.session_no <= worker.session_no:
        message = f"Worker {worker.id} has already opened session {worker.session_no}."
        return Rejection("wrong_state", message, {"state": worker.status.upper()})
    decision = _decide_accepted(worker, event, now_ms)
    assert decision.worker.status in RULES[type(event)].targets
    return decision


def _decide_accepted(worker: Worker, event: WorkerEvent, now_ms: int) -> WorkerDecision:
    match event:
        case DrainRequested():
            return _drain(worker, event, now_ms)
        case SessionOpened():
            session_no = event.session_no or worker.session_no + 1
            return WorkerDecision(replace(worker, session_no=session_no))
        case KeyChanged():
            return WorkerDecision(replace(worker, key_id=event.key_id))
        case WorkerEnded():
            return _end(worker, event.reason, now_ms)
        case HeldReleased():
            return WorkerDecision(replace(worker, release_pending=False))
        case _:
            assert_never(event)


def _drain(worker: Worker, event: DrainRequested, now_ms: int) -> WorkerDecision:
    if worker.status is WorkerStatus.DRAINING:
        return WorkerDecision(worker)
    draining = replace(worker, status=WorkerStatus.DRAINING, drain_at_ms=now_ms + event.deadline_ms)
    return WorkerDecision(draining, effects=(TellDrain(worker.id),))


def _end(worker: Worker, reason: EndReason, now_ms: int) -> WorkerDecision:
    ended = replace(
        worker,
        status=WorkerStatus.OFFLINE,
        end_reason=reason,
        ended_at_ms=now_ms,
        release_pending=True,
    )
    return WorkerDecision(ended, effects=(TellEnded(worker.id, reason), ReleaseHeld(worker.id)))


def _refuse(worker: Worker, event: WorkerEvent) -> Rejection:
    if isinstance(event, DrainRequested | HeldReleased):
        return Rejection(
            "wrong_state",
            f"The call is not possible while worker {worker.id} is {worker.status}.",
            {"state": worker.status.upper()},
        )
    return inactive(worker.id, worker.end_reason)


def inactive(worker_id: str, reason: EndReason | None) -> Rejection:
    """Refuse a call of a worker that has ended or was never registered."""
    return Rejection(
        "worker_inactive",
        f"Worker {worker_id} is not active. Register again with a new instance key.",
        {"reason": "unknown" if reason is None else reason.value},
    )


def report_refusal(worker: Worker | None, *, namespace: str, worker_id: str) -> Rejection | None:
    """Return why a worker may not report: it has ended, or is not of this namespace."""
    if worker is None or worker.namespace != namespace:
        return inactive(worker_id, None)
    return inactive(worker_id, worker.end_reason) if worker.status is _OFF else None


def speaker_refusal(worker: Worker, speaker: str | None) -> Rejection | None:
    """Return why an API key may not act for a worker.

    ``None`` may act for all: an administrator, or everybody on a server without keys. A worker
    without a key was registered before there were keys; every key may act for it.
    """
    if speaker is None or worker.key_id in {"", speaker}:
        return None
    return Rejection(
        "worker_inactive",
        f"Worker {worker.id} belongs to another API key. Register it again with its instance key.",
        {"reason": OTHER_KEY},
    )


def served_refusal(worker: Worker) -> Rejection | None:
    """Return why a worker may not poll, open a session or send heartbeats: it is called."""
    if worker.mode not in DRIVEN:
        return None
    return Rejection(
        "wrong_state",
        f"A server calls worker {worker.id}, which cannot ask for work by itself.",
        {"state": worker.status.upper()},
    )


def hand_out_refusal(worker: Worker | None, worker_id: str) -> Rejection | None:
    """Return why a worker may not get work; the row was read under its lock."""
    if worker is None or worker.status is _OFF:
        return inactive(worker_id, worker.end_reason if worker else None)
    if worker.status is _DRAIN:
        return Rejection("worker_draining", f"Worker {worker_id} is draining: it gets no work.")
    return None
