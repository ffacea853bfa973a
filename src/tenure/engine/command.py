"""What can be asked of the engine: small immutable values, one answer each.

The ``speaker`` of a worker's command is the API key that has to be the worker's own. ``None`` may
speak for all: an administrator, the engine itself, or whoever was looked at before.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tenure.core.access.api_key import ApiKey, KeyText, Role
from tenure.core.limits import DRAIN_DEADLINE_MS, LONG_POLL_MS, SUSPECT_GRACE_MS
from tenure.core.task.record import NewTask, Task, TaskState
from tenure.core.task.retry import ErrorInfo
from tenure.core.worker.judge_readiness import JudgeReadiness
from tenure.core.worker.lease import Beat, Lease
from tenure.core.worker.record import EndReason, NewWorker, Worker
from tenure.errors import Rejection


class TaskRef(msgspec.Struct, frozen=True, gc=False):
    """One attempt of one task."""

    task_id: str
    attempt: int


class Sink(Protocol):
    """Where the consumer of an offer is reached. Calls may come twice and must not block."""

    @property
    def is_open(self) -> bool:
        """Tell whether somebody still listens."""
        ...

    @property
    def room_bytes(self) -> int:
        """Return how much of payloads can be given now; less than one means to wait."""
        ...

    def give(self, tasks: Sequence[Task]) -> None:
        """Deliver handed-out tasks."""
        ...

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """Tell that tasks are to be cancelled."""
        ...

    def stop(self, refs: Sequence[TaskRef]) -> None:
        """Tell that attempts are over."""
        ...

    def drain(self) -> None:
        """Tell that the worker drains: nothing more comes."""
        ...

    def end(self, reason: EndReason) -> None:
        """Tell that the worker is offline."""
        ...


class EnqueueTasks(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Store tasks, all or nothing. A resend is marked, and only then looked up first."""

    namespace: str
    tasks: tuple[NewTask, ...]
    is_resend: bool = False


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The answer for one enqueued task; of a repeated one its first id and present state."""

    task_id: str
    state: TaskState
    is_new: bool


class ClaimTasks(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A poll: up to ``max_tasks`` for a worker, waiting for the first up to ``wait_ms``."""

    namespace: str
    worker_id: str
    queue: str
    types: frozenset[str]
    max_tasks: int = 1
    wait_ms: int = LONG_POLL_MS
    speaker: str | None = None


class ConfirmTasks(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The worker really holds these attempts; some of them are ``exclusive``."""

    namespace: str
    worker_id: str | None
    items: tuple[TaskRef, ...]
    exclusive: frozenset[TaskRef] = frozenset()
    speaker: str | None = None


class TaskBeat(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A heartbeat of one attempt."""

    task_id: str
    attempt: int
    details: bytes | None = None
    percent: float | None = None
    message: str | None = None


class HeartbeatTasks(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Attempts make progress."""

    namespace: str
    worker_id: str | None
    items: tuple[TaskBeat, ...]
    speaker: str | None = None


class FinishKind(enum.StrEnum):
    """How a worker says that an attempt is over for it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RELEASED = "released"
    DEFERRED = "deferred"
    YIELDED = "yielded"

    # Enum's own hash is a Python function.
    __hash__ = str.__hash__


class Finish(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The end of one attempt as its worker reports it.

    Without ``output_encoding`` an output is encoded as the input.
    """

    task_id: str
    attempt: int
    kind: FinishKind
    output: bytes | None = None
    output_encoding: str = ""
    error: ErrorInfo | None = None
    wake_seq: int = 0
    wake_at_ms: int = 0


class FinishTasks(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Attempts are over. ``worker_id`` is None when a task token vouches for the caller."""

    namespace: str
    worker_id: str | None
    items: tuple[Finish, ...]
    speaker: str | None = None


class CompleteById(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Asynchronous completion by id: the live attempt, unless ``finish.attempt`` names one."""

    namespace: str
    finish: Finish


class Reported(msgspec.Struct, frozen=True, gc=False):
    """An accepted report: where the task stands now, and whether it shall be cancelled.

    Whoever runs an exclusive attempt has to know that it was accepted.
    """

    state: TaskState
    should_cancel: bool = False
    cancel_reason: str = ""
    is_exclusive: bool = False


ItemAnswer = Reported | Rejection
"""One item's answer; a refused item disturbs no other."""


class CancelTask(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Cancel a task."""

    namespace: str
    task_id: str
    reason: str = ""


class PauseTask(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Hold a task."""

    namespace: str
    task_id: str


class ResumeTask(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Let a held task go on."""

    namespace: str
    task_id: str


class TerminateTask(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """End a task without asking its worker."""

    namespace: str
    task_id: str


class RetryTask(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Make a new task from a finished one."""

    namespace: str
    task_id: str
    new_task_id: str


class SignalCancels(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An answer or a push carried these cancel requests: their grace begins."""

    namespace: str
    items: tuple[TaskRef, ...]


class ReturnUndelivered(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Tasks were handed out to a receiver that was already gone."""

    namespace: str
    worker_id: str
    items: tuple[TaskRef, ...]


class RegisterWorker(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Register an incarnation; the same instance key again gives the same one."""

    namespace: str
    new: NewWorker
    speaker: str | None = None


class Registration(msgspec.Struct, frozen=True, gc=False):
    """A registered worker, its lease with the first token, and how often to beat."""

    worker: Worker
    lease: Lease
    interval_ms: int


class DrainWorker(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Let a worker finish what it holds and give it nothing new.

    ``actor`` is the id of the key that asks, for the audit log; a server without keys has none.
    What a worker wishes for itself (``is_own``) is not administration.
    """

    namespace: str
    worker_id: str
    deadline_ms: int = DRAIN_DEADLINE_MS
    is_own: bool = False
    actor: str = ""
    speaker: str | None = None


class DeregisterWorker(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The worker says goodbye; whatever it still holds is put back."""

    namespace: str
    worker_id: str
    speaker: str | None = None


class EvictWorker(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An operator takes a worker offline."""

    namespace: str
    worker_id: str
    actor: str = ""


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A worker opens a stream, says what it holds and how much it is willing to hold.

    ``session_no`` counts its streams, so that one it gave up is refused when it comes late.
    """

    namespace: str
    worker_id: str
    held: tuple[TaskRef, ...]
    window: int
    sink: Sink
    session_no: int = 0
    speaker: str | None = None


class SessionAnswer(msgspec.Struct, frozen=True, gc=False):
    """The new session: what to stop and to cancel, and what it holds in the server's eyes."""

    worker: Worker
    lease: Lease
    stop: tuple[TaskRef, ...]
    cancel: tuple[TaskRef, ...]
    held: frozenset[TaskRef]


class CloseSession(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The peer of a session closed it without a goodbye, at an instant of this server."""

    namespace: str
    worker_id: str
    session_no: int
    lost_at_mono_ms: int | None = None
    # The token after the last heartbeat of this session, if it was accepted behind its end.
    token: int | None = None


class SpareWorkers(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """So many sessions ended together that the fault is not the workers': suspect nobody."""

    worker_ids: frozenset[str]


class FailCall(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A call to a served worker failed."""

    namespace: str
    worker_id: str


class ReportHeld(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a heartbeat says about attempts: deltas, or the full set (``held``)."""

    namespace: str
    worker_id: str
    bound: tuple[TaskRef, ...] = ()
    unbound: tuple[TaskRef, ...] = ()
    held: tuple[TaskRef, ...] | None = None
    previous_beat_at_ms: int = 0


class HeldAnswer(msgspec.Struct, frozen=True, gc=False):
    """Which reported attempts the worker has to stop."""

    stop: tuple[TaskRef, ...] = ()


class SetQueue(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Set the brakes of a queue; ``None`` leaves one as it is."""

    namespace: str
    name: str
    is_paused: bool | None = None
    concurrency_max: int | None = None
    actor: str = ""


class CreateNamespace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Create a namespace."""

    name: str
    actor: str = ""


class SetNamespace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Disable or enable a namespace; doing so twice is fine. The answer is the namespace."""

    name: str
    is_disabled: bool
    actor: str = ""


class CreateKey(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Make an API key. Without namespaces it is for all of them; without expiry it never ends.

    What ``actor`` may grant is looked up when the command runs: a key that was revoked meanwhile
    makes no other.
    """

    name: str
    role: Role
    namespaces: tuple[str, ...] = ()
    expires_in_ms: int = 0
    actor: str = ""


class CreatedKey(msgspec.Struct, frozen=True, gc=False):
    """A new key, and the one chance to read its text: ``text.reveal()``."""

    key: ApiKey
    text: KeyText


class RevokeKey(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """End a key for good; doing so twice gives the same answer, the key."""

    key_id: str
    actor: str = ""


class ProcessDue(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Look at tasks whose timer has fired; ``judge_readiness`` is looked at again in the batch."""

    sighted_ms: int
    amount: int
    judge_readiness: JudgeReadiness | None = None


class JudgeLeases(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Take workers offline whose lease is over; ``judge_readiness`` is looked at again."""

    sighted_ms: int
    amount: int
    suspect_grace_ms: int = SUSPECT_GRACE_MS
    judge_readiness: JudgeReadiness | None = None


class ReleaseHeldTasks(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Put back a bounded number of tasks that an offline worker held."""

    worker_id: str
    amount: int


class WorkDone(msgspec.Struct, frozen=True, gc=False):
    """How many rows a service's command changed, and whether more may be left.

    ``kept_count`` were looked at and stay as they are, for now.
    """

    count: int
    has_more: bool = False
    kept_count: int = 0


class Heartbeat(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A worker's heartbeat. The heartbeat lane renews the lease; ``ReportHeld`` does the rest."""

    namespace: str
    worker_id: str
    beat: Beat
    wants_cancels: bool = False
    speaker: str | None = None


class TouchServer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The server is alive, and its heartbeat lane can commit."""

    server_id: str


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """An accepted heartbeat: the lease with its new token, and what to cancel."""

    lease: Lease
    should_drain: bool = False
    cancel: tuple[TaskRef, ...] = ()


WorkCommand = (
    EnqueueTasks
    | ClaimTasks
    | ConfirmTasks
    | HeartbeatTasks
    | FinishTasks
    | CompleteById
    | CancelTask
    | PauseTask
    | ResumeTask
    | TerminateTask
    | RetryTask
    | SignalCancels
    | ReturnUndelivered
    | RegisterWorker
    | DrainWorker
    | DeregisterWorker
    | EvictWorker
    | OpenSession
    | CloseSession
    | SpareWorkers
    | FailCall
    | ReportHeld
    | SetQueue
    | CreateNamespace
    | SetNamespace
    | CreateKey
    | RevokeKey
    | ProcessDue
    | JudgeLeases
    | ReleaseHeldTasks
)
HeartbeatCommand = Heartbeat | TouchServer
Command = WorkCommand | HeartbeatCommand
Tasks = tuple[Task, ...]
