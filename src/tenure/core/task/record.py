"""The record of a task: the request, its state, and what happened so far."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tenure.core.limits import CANCEL_GRACE_MS, DELIVERY_TIMEOUT_MS, PRIORITY_DEFAULT
from tenure.core.run.record import NO_ORIGIN, Origin, RunLink, RunProgress
from tenure.core.schedule.origin import FireOrigin
from tenure.core.task.attempt import Outcome
from tenure.core.task.callback import CallbackAttempt
from tenure.core.task.retry import ErrorInfo, RetryPolicy


class TaskState(enum.StrEnum):
    """The state of a task; the wire names are upper case."""

    PENDING = "pending"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    CANCELLING = "cancelling"
    WAITING = "waiting"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    # Enum's own hash is a Python function; sets and tables of states are on the hot path.
    __hash__ = str.__hash__


TERMINAL: Final = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})
# A look-up of the state costs a fifth of ``is_attempt_live``: what each task needs asks first here.
ATTEMPT_HELD: Final = frozenset({TaskState.DISPATCHED, TaskState.RUNNING, TaskState.CANCELLING})

UNHELD: Final = frozenset({TaskState.PENDING, TaskState.WAITING, TaskState.PAUSED})
_BY_WORKER: Final = frozenset({TaskState.DISPATCHED, TaskState.RUNNING})
_IN_LINE: Final = frozenset({TaskState.PENDING})
# Until Python 3.12 members of an enum are found by a Python function.
_WAITING: Final = TaskState.WAITING


class TaskKind(enum.StrEnum):
    """What a worker executes."""

    ACTIVITY = "activity"
    WORKFLOW = "workflow"


class Line(enum.IntEnum):
    """In which line a pending task waits to be claimed.

    Fresh tasks are claimed from a low-water mark onwards, because their order is never far behind
    the present. A task that became claimable later may be anywhere in the order, so it waits in a
    line of its own that is always read from its head. Suspects of the crash guard fit few workers,
    so they have a line of their own and never delay others.
    """

    NONE = 0
    FRESH = 1
    RETURNED = 2
    SUSPECT = 3

    __hash__ = int.__hash__


class Reason(enum.StrEnum):
    """Why a task failed."""

    RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
    NON_RETRYABLE = "NON_RETRYABLE"
    SCHEDULE_TO_START = "SCHEDULE_TO_START"
    SCHEDULE_TO_CLOSE = "SCHEDULE_TO_CLOSE"
    START_TO_CLOSE = "START_TO_CLOSE"
    HEARTBEAT_TIMEOUT = "HEARTBEAT_TIMEOUT"
    CANCEL_TIMEOUT = "CANCEL_TIMEOUT"
    POISONED = "POISONED"
    INTERRUPTIONS_EXHAUSTED = "INTERRUPTIONS_EXHAUSTED"
    TERMINATED = "TERMINATED"


TIMEOUTS: Final = frozenset(
    {
        Reason.SCHEDULE_TO_START,
        Reason.SCHEDULE_TO_CLOSE,
        Reason.START_TO_CLOSE,
        Reason.HEARTBEAT_TIMEOUT,
    }
)


class Spec(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={
        "kind": "k",
        "schedule_to_start_ms": "ss",
        "schedule_to_close_ms": "sc",
        "start_to_close_ms": "st",
        "heartbeat_timeout_ms": "ht",
        "heartbeat_interval_ms": "hi",
        "cancel_grace_ms": "cg",
        "delivery_timeout_ms": "d",
        "close_at_ms": "ca",
        "retry": "r",
        "encoding": "e",
        "idempotency_key": "ik",
        "resources": "rs",
        "retry_of": "ro",
        "fire": "f",
    },
):
    """The request; it never changes. Short names keep the stored form small.

    Tasks of one kind should have equal specs: equal specs are checked, encoded and decoded once.
    ``close_at_ms`` and ``idempotency_key`` are set when a task is created; ``fire`` is of a task
    that a schedule has started.
    """

    kind: TaskKind = TaskKind.ACTIVITY
    schedule_to_start_ms: int = 0
    schedule_to_close_ms: int = 0
    start_to_close_ms: int = 0
    heartbeat_timeout_ms: int = 0
    heartbeat_interval_ms: int = 0
    cancel_grace_ms: int = CANCEL_GRACE_MS
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    close_at_ms: int = 0
    retry: RetryPolicy = RetryPolicy()
    encoding: str = ""
    idempotency_key: str = ""
    resources: dict[str, str] = {}
    retry_of: str = ""
    fire: FireOrigin | None = None

    @property
    def schedule_id(self) -> str:
        """The schedule that has started the task, if one has."""
        return "" if self.fire is None else self.fire.schedule_id

    @property
    def fire_at_ms(self) -> int:
        """For which instant its schedule has started it, 0 if none has."""
        return 0 if self.fire is None else self.fire.fire_at_ms


class AttemptProgress(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={
        "confirmed_at_ms": "cf",
        "beat_at_ms": "b",
        "ready_at_ms": "ra",
        "failure_count": "f",
        "interruption_count": "i",
        "loss_count": "l",
        "alone_count": "al",
        "counted_count": "lc",
        "group_max": "gm",
        "lost_at_ms": "la",
        "undelivered_count": "u",
        "avoid_worker_id": "aw",
        "details": "d",
        "percent": "pc",
        "message": "m",
        "cancel_at_ms": "ca",
        "cancel_reason": "cr",
        "grace_at_ms": "g",
        "pause_wanted": "pw",
        "is_sole": "so",
        "is_async": "as",
        "reason": "r",
        "error": "e",
        "output_encoding": "oe",
        "exclusive_at_ms": "x",
        "release_at_ms": "xr",
        "release_lease_ms": "xl",
        "run": "ru",
        "callback": "cb",
    },
):
    """What happened so far; stored as one value, because no statement reads inside it.

    ``output_encoding`` is set only if the output has another encoding than the input.
    ``loss_count``, ``alone_count`` and ``counted_count`` are worker losses in a row: all of them,
    those without another suspect, those that count towards POISONED (see ``crash_guard``).
    ``exclusive_at_ms`` is when the live attempt was confirmed as exclusive. ``release_at_ms`` is
    until when it is held for a worker that is gone, whose lease was ``release_lease_ms`` long.
    ``run`` is where a run stands; an activity has none. ``callback`` is what the live attempt has
    if an endpoint works on it, or the last one of a finished task.
    """

    confirmed_at_ms: int = 0
    beat_at_ms: int = 0
    ready_at_ms: int = 0
    failure_count: int = 0
    interruption_count: int = 0
    loss_count: int = 0
    alone_count: int = 0
    counted_count: int = 0
    group_max: int = 0
    lost_at_ms: tuple[int, ...] = ()
    undelivered_count: int = 0
    avoid_worker_id: str | None = None
    details: bytes | None = None
    percent: float | None = None
    message: str | None = None
    cancel_at_ms: int = 0
    cancel_reason: str = ""
    grace_at_ms: int = 0
    pause_wanted: bool = False
    is_sole: bool = False
    is_async: bool = False
    reason: Reason | None = None
    error: ErrorInfo | None = None
    output_encoding: str = ""
    exclusive_at_ms: int = 0
    release_at_ms: int = 0
    release_lease_ms: int = 0
    run: RunProgress | None = None
    callback: CallbackAttempt | None = None


NO_PROGRESS: Final = AttemptProgress()
"""Shared by all tasks to which nothing unusual has happened."""


class Task(msgspec.Struct, frozen=True, gc=False):
    """One task as it is stored; ``version`` fences every write of its row.

    ``worker_id`` is the worker that holds the task, or held it last if it is finished.
    ``last_outcome`` is how the last ended attempt ended. ``damaged`` names the stored parts that
    are damaged and so not here. ``input`` is set for those who need it; ``unread_bytes`` is the
    size of an input that a claim has not read from the store. ``link`` is how the task belongs to
    runs, if it does.
    """

    id: str
    namespace: str
    queue: str
    type: str
    spec: Spec
    state: TaskState
    line: Line
    created_at_ms: int
    run_at_ms: int
    progress: AttemptProgress = NO_PROGRESS
    priority: int = PRIORITY_DEFAULT
    attempt: int = 0
    version: int = 0
    worker_id: str | None = None
    handed_at_ms: int = 0
    session_no: int = 0
    last_outcome: Outcome | None = None
    due_at_ms: int | None = None
    is_guarded: bool = False
    labels: dict[str, str] | None = None
    input: bytes | None = None
    output: bytes | None = None
    finished_at_ms: int | None = None
    damaged: tuple[str, ...] = ()
    unread_bytes: int = 0
    link: RunLink | None = None

    def __post_init__(self) -> None:
        """Check the invariants of a task in every state."""
        state = self.state
        if self.worker_id is None:
            assert state not in _BY_WORKER
        else:
            assert state not in UNHELD
            assert self.attempt > 0
        assert not self.line or state in _IN_LINE
        assert (self.finished_at_ms is not None) == (state in TERMINAL)

    def payload_bytes(self) -> int:
        """Return the approximate size of the task on its way to a worker."""
        size = self.unread_bytes
        if self.input is not None:
            size += len(self.input)
        if self.progress.details is not None:
            size += len(self.progress.details)
        return size

    @property
    def kind(self) -> TaskKind:
        """What a worker executes."""
        return self.spec.kind

    @property
    def place(self) -> Origin:
        """Where it stands in runs: which one made it, and by which call."""
        return NO_ORIGIN if self.link is None else self.link.place

    @property
    def output_encoding(self) -> str:
        """The encoding of the output: that of the input, unless the worker named another."""
        return self.progress.output_encoding or self.spec.encoding

    @property
    def is_attempt_live(self) -> bool:
        """Whether the present attempt may still report."""
        state = self.state
        if state in ATTEMPT_HELD:
            return True
        return state is _WAITING and self.progress.is_async

    @property
    def is_cancel_requested(self) -> bool:
        """Whether a cancel of this task was requested."""
        return self.progress.cancel_at_ms > 0


class NewTask(msgspec.Struct, frozen=True, gc=False):
    """A task as a client requests it. ``id`` is made by the client, so a resend has the same id.

    ``spec`` is shared by tasks of one kind; make it once and use it for all of them.
    """

    id: str
    type: str
    queue: str
    spec: Spec
    input: bytes | None = None
    priority: int = PRIORITY_DEFAULT
    run_at_ms: int = 0
    labels: dict[str, str] | None = None
    idempotency_key: str = ""
