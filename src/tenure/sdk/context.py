"""What an activity sees of its own execution, wherever it runs: loop, thread or process."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import msgspec

from tenure.sdk.payload import Converter

_current: ContextVar[ActivityContext] = ContextVar("tenure_activity")


class StopReason(enum.StrEnum):
    """Why an activity is to stop."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    WORKER_SHUTDOWN = "worker_shutdown"
    LOST_LEASE = "lost_lease"


class Info(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The attempt that is being executed. Durations of 0 are not set; instants are the server's.

    ``failure_count`` are the failures so far. ``idempotency_key`` is the same in every attempt of
    the task, ``attempt_key`` is new in each. ``token`` is the credential for asynchronous
    completion, given to activities that are declared with ``completes_later=True``.
    """

    task_id: str
    attempt: int
    type: str
    queue: str
    namespace: str
    worker_id: str
    failure_count: int = 0
    maximum_attempts: int = 0
    priority: int = 5
    labels: dict[str, str] = {}
    start_to_close_ms: int = 0
    schedule_to_close_ms: int = 0
    heartbeat_timeout_ms: int = 0
    heartbeat_interval_ms: int = 0
    cancel_grace_ms: int = 0
    created_at_ms: int = 0
    handed_at_ms: int = 0
    deadline_at_ms: int = 0
    token: str = ""
    user_key: str = ""
    run_id: str = ""
    parent_id: str = ""

    @property
    def idempotency_key(self) -> str:
        """For what must be done once per task: give it to the service that is called."""
        return self.user_key or self.task_id

    @property
    def attempt_key(self) -> str:
        """For what must be told apart from attempt to attempt."""
        return f"{self.task_id}:{self.attempt}"


class CompletesLater(Exception):  # noqa: N818 (a signal, not an error)
    """Raised by ``complete_later`` to leave the activity; never seen by a caller."""


class ActivityContext:
    """The context of one attempt; runners subclass it for where they run."""

    def __init__(self, info: Info, converter: Converter, details: bytes | None = None) -> None:
        """Stand for an attempt; ``details`` are those of the last heartbeat of an earlier one."""
        self.info = info
        self.converter = converter
        self.details = details
        self.stop_reason: StopReason | None = None

    def send_beat(
        self,
        details: bytes | None,
        percent: float | None = None,
        message: str | None = None,
    ) -> None:
        """Report progress; called in the activity's own thread."""
        raise NotImplementedError

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """Keep a stop from being raised inside; it comes at the end."""
        raise NotImplementedError


def enter(context: ActivityContext) -> None:
    """Make a context the current one of this thread or task."""
    _current.set(context)


def current() -> ActivityContext:
    """Return the context of the activity that asks."""
    context = _current.get(None)
    if context is None:
        message = (
            "This works only inside an activity that a worker runs. In a test, run the activity "
            "with tenure.testing.run_activity()."
        )
        raise RuntimeError(message)
    return context


def heartbeat_details(*types: Any) -> Any:  # noqa: ANN401 (any types of a user)
    """Return what the last heartbeat of an earlier attempt carried, as the given types."""
    context = current()
    if context.details is None:
        message = "There are no heartbeat details. Ask has_heartbeat_details() first."
        raise LookupError(message)
    values = context.converter.decode_details(context.details, *types)
    return values[0] if len(values) == 1 else values
