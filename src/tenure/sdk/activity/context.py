"""The context of a running activity, the same on the event loop, in threads and in processes."""

from __future__ import annotations

import enum
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta

import msgspec

from tenure.sdk.payload import Converter, UserValue

_current: ContextVar[ActivityContext] = ContextVar("tenure_activity")


class StopReason(enum.StrEnum):
    """Why an activity has to stop.

    After ``cancelled`` its result still counts, unless the cancel came before the server knew that
    it runs. After ``worker_shutdown`` the task is handed back. In all other cases the attempt has
    ended already, and its result is ignored.
    """

    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    WORKER_SHUTDOWN = "worker_shutdown"
    LOST_LEASE = "lost_lease"


class Info(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The attempt that is being executed. A timeout that is None is not set.

    Instants are those of the server, in UTC. ``failure_count`` counts the failures so far;
    ``max_attempts`` 0 is without limit. ``idempotency_key`` is the same in every attempt of the
    task, ``attempt_key`` is new in each.

    In a queued step of a workflow ``run_id`` is its run, and ``idempotency_key`` is the same in
    runs that were made from that one by a retry, too. In a local step ``is_local`` is true,
    ``task_id`` and ``run_id`` are those of the run, and ``attempt`` counts attempts of the step.

    What a schedule has started has its ``schedule_id``, and in ``fire_at`` the instant for which
    it was started: that of the rule, however late it was.
    """

    task_id: str
    attempt: int
    type: str
    queue: str
    namespace: str
    worker_id: str
    failure_count: int = 0
    max_attempts: int = 0
    priority: int = 5
    labels: dict[str, str] = {}
    start_to_close: timedelta | None = None
    schedule_to_close: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    heartbeat_interval: timedelta | None = None
    cancel_grace: timedelta | None = None
    created_at: datetime | None = None
    handed_at: datetime | None = None
    deadline_at: datetime | None = None
    task_token: str = ""
    user_key: str = ""
    run_id: str = ""
    parent_id: str = ""
    is_local: bool = False
    schedule_id: str = ""
    fire_at: datetime | None = None

    @property
    def idempotency_key(self) -> str:
        """A key for what must be done once per task; give it to the service that you call."""
        return self.user_key or self.task_id

    @property
    def attempt_key(self) -> str:
        """A key that differs from attempt to attempt."""
        of = self.user_key if self.is_local else self.task_id
        return f"{of}:{self.attempt}"

    @property
    def token(self) -> str:
        """The credential for asynchronous completion, which then needs no API key.

        Raises ``LookupError`` in an activity that is not declared to complete later.
        """
        if not self.task_token:
            message = (
                f"Task {self.task_id} has no token. Declare its activity with "
                "@activity(completes_later=True), or complete it by its id."
            )
            raise LookupError(message)
        return self.task_token


class Stopped(BaseException):
    """Raised inside an activity in a thread or a process that has to stop; catch it to clean up.

    ``activity.stop_reason()`` says why. It is not a subclass of ``Exception``: ``except Exception``
    does not catch it, as it does not catch the ``CancelledError`` of an async activity.
    """


class CompletesLater(Exception):
    """Raised by ``complete_later`` to leave the activity; never seen by a caller."""


class ActivityContext:
    """The context of one attempt; each way of running activities has its subclass."""

    def __init__(
        self, info: Info | None, converter: Converter, details: bytes | None = None
    ) -> None:
        """Describe an attempt; ``details`` are from the last heartbeat of an earlier attempt.

        Without ``info``, ``make_info`` is called when somebody asks: few activities do.
        """
        self._info = info
        self.converter = converter
        self.details = details
        self.stop_reason: StopReason | None = None

    @property
    def info(self) -> Info:
        """The attempt that is being executed."""
        if self._info is None:
            self._info = self.make_info()
        return self._info

    def make_info(self) -> Info:
        """Return what ``info`` shows."""
        raise NotImplementedError

    def send_beat(
        self, details: bytes | None, percent: float | None = None, message: str | None = None
    ) -> None:
        """Report progress; called in the activity's own thread."""
        raise NotImplementedError

    def shield(self) -> AbstractContextManager[None]:
        """Delay a stop until the block ends."""
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


def heartbeat_details(*types: UserValue) -> UserValue:
    """Return the details of the last heartbeat of an earlier attempt, as the given types.

    One type gives one value, several give a tuple; without any, everything is a plain value.
    """
    context = current()
    if context.details is None:
        message = (
            "No earlier attempt has left heartbeat details. Check has_heartbeat_details() first."
        )
        raise LookupError(message)
    values = context.converter.decode_details(context.details, *types)
    wanted_count = len(types) or len(values)
    return values[0] if wanted_count == 1 else values[:wanted_count]
