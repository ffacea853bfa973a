"""What can be asked about runs, and the answers."""

from __future__ import annotations

import msgspec

from tenure.core.journal.entry import NewEntry
from tenure.core.run.external_id import OnFinished, OnLive
from tenure.core.task.record import NewTask
from tenure.engine.command import Command
from tenure.engine.task.command import Enqueued, EnqueueTasks, Reported
from tenure.errors import Rejection
from tenure.store.table.journal import Place


class NewSignal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A signal as its sender gives it. One with an id is recorded once, however often it comes."""

    name: str
    payload: bytes | None = None
    encoding: str = ""
    signal_id: str = ""
    sender: str = ""


class Started(Enqueued, frozen=True, gc=False):
    """The answer for a start; a run that exists already may differ from what was asked for."""

    content_differs: bool = False


class StartRun(Command[Started], frozen=True, kw_only=True):
    """Start a run; its signals are the first entries of its journal. A resend is marked.

    With an external id that another run has, ``on_live`` or ``on_finished`` decides.
    """

    namespace: str
    new: NewTask
    signals: tuple[NewSignal, ...] = ()
    is_resend: bool = False
    external_id: str = ""
    on_live: OnLive = OnLive.RETURN
    on_finished: OnFinished = OnFinished.ALLOW

    @property
    def request(self) -> EnqueueTasks:
        """Return the request for its task: ids, keys and resends are as for every task."""
        return EnqueueTasks(namespace=self.namespace, tasks=(self.new,), is_resend=self.is_resend)


class StepReport(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Entries that the holder of a run appends, numbered by itself from ``first_no`` on."""

    task_id: str
    attempt: int
    first_no: int
    entries: tuple[NewEntry, ...]


class StepsPlaced(msgspec.Struct, frozen=True, gc=False):
    """Where the entries of a report stand, in their order.

    The report is not new if somebody has taken one of its numbers before.
    """

    places: tuple[Place, ...]
    is_new: bool = True


StepAnswer = StepsPlaced | Rejection
"""One report's answer; a refused one disturbs no other."""


class RecordSteps(Command[tuple[StepAnswer, ...]], frozen=True, kw_only=True):
    """Workers append to the journals of runs that they hold."""

    namespace: str
    worker_id: str
    items: tuple[StepReport, ...]
    speaker: str | None = None


class Signalled(msgspec.Struct, frozen=True, gc=False):
    """A signal is in the journal, since now or, if it came before, since then."""

    is_new: bool


class SignalRun(Command[Signalled], frozen=True, kw_only=True):
    """Send a signal to a run."""

    namespace: str
    run_id: str
    signal: NewSignal


class Retried(Enqueued, frozen=True, gc=False):
    """The answer for a retry: how many entries the new run keeps."""

    kept_count: int = 0


class RetryRun(Command[Retried], frozen=True, kw_only=True):
    """Make a new run from a finished one, with the first entries of its journal.

    How many, the groups among them, and its external id were read before: a finished run does not
    change. The same new id again gives the same run.
    """

    namespace: str
    run_id: str
    new_run_id: str
    kept_count: int = 0
    kept_bytes: int = 0
    group_keys: tuple[str, ...] = ()
    external_id: str = ""
    actor: str = ""


class CancelRun(Command[Reported], frozen=True, kw_only=True):
    """Ask a run to end; its code may clean up.

    Here and elsewhere ``actor`` is the id of the caller's key, for the audit log.
    """

    namespace: str
    run_id: str
    reason: str = ""
    actor: str = ""


class ResumeRun(Command[Reported], frozen=True, kw_only=True):
    """Let a paused run go on, and try a parked one at once."""

    namespace: str
    run_id: str
    actor: str = ""


class TerminateRun(Command[Reported], frozen=True, kw_only=True):
    """End a run without asking its code."""

    namespace: str
    run_id: str
    actor: str = ""
