"""What can happen to a task. Every report of a worker carries its attempt."""

from __future__ import annotations

import msgspec

from tenure.core.journal.entry import NewEntry
from tenure.core.run.record import Yield
from tenure.core.task.callback import CallbackReport, CallbackTimes
from tenure.core.task.crash_guard import Loss
from tenure.core.task.record import Reason
from tenure.core.task.retry import ErrorCategory, ErrorInfo


class AttemptReport(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A report about one attempt.

    ``worker_id`` is the reporting worker; ``None`` means a task token or an API key instead.
    ``needs_confirmed`` is set by a caller that only knows the id and so cannot prove the delivery.
    ``said`` is what else a process behind an endpoint says.
    """

    attempt: int
    worker_id: str | None = None
    needs_confirmed: bool = False
    said: CallbackReport | None = None


class HandedOut(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The task was given to a worker.

    ``journal_end`` is where the journal of a run ends, as the caller has read it under its lock.
    ``times`` are those of an endpoint.
    """

    worker_id: str
    session_no: int = 0
    journal_end: int = 0
    times: CallbackTimes | None = None


class Confirmed(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The worker really holds the attempt (start report or binding).

    An exclusive attempt starts after the answer, and never runs beside another attempt.
    ``is_answered``: the answer carries a cancel request to the worker.
    """

    is_exclusive: bool = False
    is_answered: bool = True


class Heartbeaten(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The attempt makes progress; ``is_answered``: the answer carries a cancel request."""

    details: bytes | None = None
    percent: float | None = None
    message: str | None = None
    is_answered: bool = True


class AttemptSucceeded(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The attempt has a result; without its own encoding it has that of the input."""

    output: bytes | None = None
    output_encoding: str = ""


class AttemptFailed(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The attempt failed; ``jitter`` in [0, 1) is drawn by the caller.

    So is the id of the journal with which a run begins anew, if it does.
    """

    error: ErrorInfo
    jitter: float = 0.5
    new_journal_id: str = ""


class AttemptCancelled(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The attempt stopped because it was cancelled."""


class AttemptReleased(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The worker hands the attempt back; this does not count as a failure."""


class AttemptDeferred(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The activity will be completed from outside."""


class AttemptYielded(AttemptReport, frozen=True, kw_only=True, gc=False):
    """A run gives up its slot.

    ``journal_end`` is where its journal ends, as the caller has read it under the lock of the run.
    """

    wish: Yield
    journal_end: int


class AttemptParked(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The code of a run does not fit its journal, or the journal is full."""

    error: ErrorInfo


class AttemptContinued(AttemptReport, frozen=True, kw_only=True, gc=False):
    """A run begins anew with another input; ``kept`` are the first entries of its new journal.

    Those are signals that nobody has taken, and a cancel that the run has not seen.
    """

    new_journal_id: str
    input: bytes | None = None
    encoding: str = ""
    kept: tuple[NewEntry, ...] = ()


class StepsRecorded(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The holder of a run appends to its journal; the run itself stays as it is."""


class CancelSignalled(AttemptReport, frozen=True, kw_only=True, gc=False):
    """An answer or a push carried the cancel request to the worker."""


class DeliveryMissed(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The worker is alive and never got the attempt."""


class DeliveryAccepted(AttemptReport, frozen=True, kw_only=True, gc=False):
    """An endpoint took the envelope; its process has to report within the endpoint's time."""


class DeliveryRefused(AttemptReport, frozen=True, kw_only=True, gc=False):
    """An endpoint does not take this envelope, and never will; no process has it."""

    error: ErrorInfo


class TaskLost(AttemptReport, frozen=True, kw_only=True, gc=False):
    """The worker no longer knows the attempt."""


class WorkerLost(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The worker that holds the task is gone, and with it all its attempts.

    Its lease may not have ended yet; without a lease the worker itself said that it is done.
    """

    worker_id: str
    lease_until_ms: int = 0
    lease_ms: int = 0
    loss: Loss = Loss()


class CancelRequested(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The task shall be cancelled."""

    reason: str = ""


class PauseRequested(msgspec.Struct, frozen=True, gc=False):
    """The task shall be paused."""


class ResumeRequested(msgspec.Struct, frozen=True, gc=False):
    """A paused task shall go on."""


class Terminated(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The task ends without asking its worker."""

    message: str = "Terminated by an operator."

    @property
    def reason(self) -> Reason:
        """Return why the task fails."""
        return Reason.TERMINATED

    @property
    def error(self) -> ErrorInfo:
        """Return the known details of the failure."""
        return ErrorInfo(ErrorCategory.CANCELLED, self.message)


class DamageFound(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Stored parts of the task are damaged."""

    message: str

    @property
    def reason(self) -> Reason:
        """Return why the task fails: no attempt can change stored data.

        There is no reason of its own, because servers of earlier versions could not read it.
        """
        return Reason.NON_RETRYABLE

    @property
    def error(self) -> ErrorInfo:
        """Return the known details of the failure."""
        return ErrorInfo(ErrorCategory.DATA_QUALITY, self.message, type="DataDamaged")


class EntryAppended(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Somebody else than its holder has appended to the journal of a run, up to a position."""

    pos: int
    is_urgent: bool = False


class Due(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The row's timer fired on a server that has been sighted for ``sighted_ms``."""

    sighted_ms: int
    jitter: float = 0.5


TaskEvent = (
    HandedOut
    | Confirmed
    | Heartbeaten
    | AttemptSucceeded
    | AttemptFailed
    | AttemptCancelled
    | AttemptReleased
    | AttemptDeferred
    | AttemptYielded
    | AttemptParked
    | AttemptContinued
    | StepsRecorded
    | CancelSignalled
    | DeliveryMissed
    | DeliveryAccepted
    | DeliveryRefused
    | TaskLost
    | WorkerLost
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | Terminated
    | DamageFound
    | EntryAppended
    | Due
)
