"""The commands for workers, their sessions and leases, and their answers."""

from __future__ import annotations

import msgspec

from tenure.core.limits import DRAIN_DEADLINE_MS, SUSPECT_GRACE_MS
from tenure.core.task.effect import Stop
from tenure.core.worker.judge_readiness import JudgeReadiness
from tenure.core.worker.lease import Beat, Lease
from tenure.core.worker.record import NewWorker, Worker
from tenure.engine.claim.sink import Sink
from tenure.engine.command import Command, TaskRef, WorkDone


class Registration(msgspec.Struct, frozen=True, gc=False):
    """A registered worker, its lease with the first token, and the heartbeat interval."""

    worker: Worker
    lease: Lease
    interval_ms: int


class RegisterWorker(Command[Registration], frozen=True, kw_only=True):
    """Register an incarnation; the same instance key again returns the same one."""

    namespace: str
    new: NewWorker
    speaker: str | None = None


class DrainWorker(Command[Worker], frozen=True, kw_only=True):
    """Let a worker finish its tasks and give it nothing new.

    ``actor`` is the id of the caller's key, for the audit log; a server without keys has none. A
    worker's own request (``is_own``) is not administration.
    """

    namespace: str
    worker_id: str
    deadline_ms: int = DRAIN_DEADLINE_MS
    is_own: bool = False
    actor: str = ""
    speaker: str | None = None


class DeregisterWorker(Command[Worker], frozen=True, kw_only=True):
    """The worker deregisters; the tasks that it still holds are put back."""

    namespace: str
    worker_id: str
    speaker: str | None = None


class EvictWorker(Command[Worker], frozen=True, kw_only=True):
    """An operator takes a worker offline."""

    namespace: str
    worker_id: str
    actor: str = ""


class SessionAnswer(msgspec.Struct, frozen=True, gc=False):
    """The new session: what to stop and to cancel, and what it holds according to the server."""

    worker: Worker
    lease: Lease
    stop: tuple[Stop, ...]
    cancel: tuple[TaskRef, ...]
    held: frozenset[TaskRef]


class OpenSession(Command[SessionAnswer], frozen=True, gc=True, kw_only=True):
    """A worker opens a stream, and reports what it holds and how many attempts it accepts.

    ``session_no`` counts its streams, so that an old stream is refused when it arrives late.
    """

    namespace: str
    worker_id: str
    held: tuple[TaskRef, ...]
    window: int
    sink: Sink
    session_no: int = 0
    speaker: str | None = None


class CloseSession(Command[WorkDone], frozen=True, kw_only=True):
    """A worker closed its session without a goodbye, at an instant of this server."""

    namespace: str
    worker_id: str
    session_no: int
    lost_at_mono_ms: int | None = None
    # The token after the last heartbeat of this session, if it was accepted after its end.
    token: int | None = None


class SpareWorkers(Command[WorkDone], frozen=True, kw_only=True):
    """So many sessions ended together that the workers are not the cause: suspect none."""

    worker_ids: frozenset[str]


class FailCall(Command[WorkDone], frozen=True, kw_only=True):
    """A call to a served worker failed; in a former session of it that counts for nothing."""

    namespace: str
    worker_id: str
    session_no: int = 0


class HeldAnswer(msgspec.Struct, frozen=True, gc=False):
    """Which reported attempts the worker has to stop."""

    stop: tuple[Stop, ...] = ()


class ReportHeld(Command[HeldAnswer], frozen=True, kw_only=True):
    """What a heartbeat reports about attempts: deltas, or the full set (``held``)."""

    namespace: str
    worker_id: str
    bound: tuple[TaskRef, ...] = ()
    unbound: tuple[TaskRef, ...] = ()
    held: tuple[TaskRef, ...] | None = None
    previous_beat_at_ms: int = 0


class StopsTold(Command[WorkDone], frozen=True, kw_only=True):
    """Stops were sent to a session; if its worker has left it since, they may be lost."""

    worker_id: str
    session_no: int
    items: tuple[Stop, ...]


class JudgeLeases(Command[WorkDone], frozen=True, kw_only=True):
    """Take workers offline whose lease has ended; ``judge_readiness`` is checked again."""

    sighted_ms: int
    amount: int
    suspect_grace_ms: int = SUSPECT_GRACE_MS
    judge_readiness: JudgeReadiness | None = None


class ReleaseHeldTasks(Command[WorkDone], frozen=True, kw_only=True):
    """Put back a bounded number of tasks that an offline worker held."""

    worker_id: str
    amount: int


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """An accepted heartbeat: the lease with its new token, what to cancel, and what to stop."""

    lease: Lease
    should_drain: bool = False
    cancel: tuple[TaskRef, ...] = ()
    stop: tuple[Stop, ...] = ()


class Heartbeat(Command[Renewed], frozen=True, kw_only=True):
    """A worker's heartbeat. The heartbeat lane renews the lease; ``ReportHeld`` does the rest.

    ``is_full`` says that tasks of other queues use all slots that the worker shares with them.
    """

    namespace: str
    worker_id: str
    beat: Beat
    wants_cancels: bool = False
    is_full: bool = False
    speaker: str | None = None


class TouchServer(Command[int], frozen=True, kw_only=True):
    """The server is alive, and its heartbeat lane can commit."""

    server_id: str
