"""The commands for tasks, and their answers."""

from __future__ import annotations

import enum

import msgspec

from tenure.core.limits import LONG_POLL_MS
from tenure.core.run.record import Yield
from tenure.core.task.attempt import Outcome
from tenure.core.task.callback import CallbackReport
from tenure.core.task.record import NewTask, Task, TaskState
from tenure.core.task.retry import ErrorInfo
from tenure.core.worker.judge_readiness import JudgeReadiness
from tenure.engine.command import Command, TaskRef, WorkDone
from tenure.errors import Rejection


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The answer for one enqueued task; for a repeated one its first id and present state.

    ``outcome`` is how the last attempt of a repeated one ended.
    """

    task_id: str
    state: TaskState
    is_new: bool
    outcome: Outcome | None = None


class EnqueueTasks(Command[tuple[Enqueued, ...]], frozen=True, kw_only=True):
    """Store tasks, all or nothing. Only a marked resend is looked up first."""

    namespace: str
    tasks: tuple[NewTask, ...]
    is_resend: bool = False


Tasks = tuple[Task, ...]


class ClaimTasks(Command[Tasks], frozen=True, kw_only=True):
    """A poll: up to ``max_tasks`` for a worker, waiting for the first up to ``wait_ms``."""

    namespace: str
    worker_id: str
    queue: str
    types: frozenset[str]
    max_tasks: int = 1
    wait_ms: int = LONG_POLL_MS
    speaker: str | None = None


class Reported(msgspec.Struct, frozen=True, gc=False):
    """An accepted report: the present state of the task, and whether it shall be cancelled.

    A worker that runs an exclusive attempt has to know that it was accepted.
    """

    state: TaskState
    should_cancel: bool = False
    cancel_reason: str = ""
    is_exclusive: bool = False


ItemAnswer = Reported | Rejection
"""The answer for one item; a refused item does not affect the others."""


class ConfirmTasks(Command[tuple[ItemAnswer, ...]], frozen=True, kw_only=True):
    """The worker really holds these attempts; some of them are ``exclusive``.

    ``is_answered``: the answer reaches the worker, and with it a cancel request.
    """

    namespace: str
    worker_id: str | None
    items: tuple[TaskRef, ...]
    exclusive: frozenset[TaskRef] = frozenset()
    is_answered: bool = True
    speaker: str | None = None


class TaskBeat(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A heartbeat of one attempt; ``said`` is what else the process behind an endpoint says."""

    task_id: str
    attempt: int
    details: bytes | None = None
    percent: float | None = None
    message: str | None = None
    said: CallbackReport | None = None


class HeartbeatTasks(Command[tuple[ItemAnswer, ...]], frozen=True, kw_only=True):
    """Attempts make progress. ``is_answered``: the answer reaches the worker."""

    namespace: str
    worker_id: str | None
    items: tuple[TaskBeat, ...]
    is_answered: bool = True
    speaker: str | None = None


class FinishKind(enum.StrEnum):
    """How an attempt ended, as its worker reports it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RELEASED = "released"
    DEFERRED = "deferred"
    YIELDED = "yielded"
    PARKED = "parked"
    CONTINUED = "continued"

    # Enum's own hash is a Python function.
    __hash__ = str.__hash__


class Anew(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """With what a run begins anew: its next input, and the signals that it has not taken.

    ``keep`` are the positions of those up to ``seen``; all that is behind is kept in any case.
    Without an ``encoding`` the input is encoded as the one before.
    """

    seen: int
    keep: tuple[int, ...] = ()
    input: bytes | None = None
    encoding: str = ""


class Finish(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The end of one attempt as its worker reports it.

    Without ``output_encoding`` an output is encoded as the input. A run that yields says with
    what ``wish``, one that parks with what ``error``, and one that begins anew with what ``anew``.
    ``said`` is what else the process behind an endpoint says.
    """

    task_id: str
    attempt: int
    kind: FinishKind
    output: bytes | None = None
    output_encoding: str = ""
    error: ErrorInfo | None = None
    wish: Yield | None = None
    anew: Anew | None = None
    said: CallbackReport | None = None


class FinishTasks(Command[tuple[ItemAnswer, ...]], frozen=True, kw_only=True):
    """Attempts have ended. ``worker_id`` is None when the caller has a task token."""

    namespace: str
    worker_id: str | None
    items: tuple[Finish, ...]
    speaker: str | None = None


class CompleteById(Command[Reported], frozen=True, kw_only=True):
    """Asynchronous completion by id: the live attempt, unless ``finish.attempt`` names one."""

    namespace: str
    finish: Finish


class CancelTask(Command[Reported], frozen=True, kw_only=True):
    """Cancel a task. Here and below ``actor`` is the caller's key, for the audit log of runs."""

    namespace: str
    task_id: str
    reason: str = ""
    actor: str = ""


class PauseTask(Command[Reported], frozen=True, kw_only=True):
    """Pause a task."""

    namespace: str
    task_id: str
    actor: str = ""


class ResumeTask(Command[Reported], frozen=True, kw_only=True):
    """Resume a paused task."""

    namespace: str
    task_id: str
    actor: str = ""


class TerminateTask(Command[Reported], frozen=True, kw_only=True):
    """End a task without asking its worker."""

    namespace: str
    task_id: str
    actor: str = ""


class RetryTask(Command[Enqueued], frozen=True, kw_only=True):
    """Create a new task from a finished one."""

    namespace: str
    task_id: str
    new_task_id: str
    actor: str = ""


class SignalCancels(Command[WorkDone], frozen=True, kw_only=True):
    """An answer or a push carried these cancel requests: their grace begins."""

    namespace: str
    items: tuple[TaskRef, ...]


class ReturnUndelivered(Command[WorkDone], frozen=True, kw_only=True):
    """Tasks were handed out to a receiver that was already gone."""

    namespace: str
    worker_id: str
    items: tuple[TaskRef, ...]


class ProcessDue(Command[WorkDone], frozen=True, kw_only=True):
    """Handle tasks whose timer has fired; ``judge_readiness`` is checked again in the batch."""

    sighted_ms: int
    amount: int
    judge_readiness: JudgeReadiness | None = None
