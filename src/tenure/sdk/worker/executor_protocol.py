"""The interface between execution and connection: what each may ask of the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from tenure.sdk.activity.context import StopReason
from tenure.v1 import journal_pb2, task_pb2, workflow_service_pb2
from tenure.v1.error_pb2 import ErrorDetail


class NumberedEntry(NamedTuple):
    """An entry for the journal of a run; ``seen`` is how far the run knew its journal before."""

    task_id: str
    attempt: int
    no: int
    entry: task_pb2.NewEntry
    seen: int


class RecordedEntries(NamedTuple):
    """Entries that stand in the journal of a run, at consecutive positions up to ``pos``."""

    task_id: str
    attempt: int
    first_no: int
    last_no: int
    pos: int
    at_ms: int


class WantedPage(NamedTuple):
    """A part of what the server has of a run: entries, open children, or results of a group.

    With ``open_after`` it is the open children behind that id, with ``group_key`` the results of a
    group behind ``after``, else the entries of the journal behind ``after``.
    """

    task_id: str
    attempt: int
    after: int = 0
    group_key: str = ""
    open_after: str = ""


ChildReport = journal_pb2.SpawnReport | journal_pb2.ChildCancel
"""What a run reports of its children, numbered within its attempt."""


class AnsweredReport(NamedTuple):
    """A ``ChildReport`` that the server has carried out; with ``error``, that it never will."""

    task_id: str
    attempt: int
    number: int
    error: ErrorDetail | None = None


class Reporter(Protocol):
    """What execution reports to the connection, from any thread. No call blocks."""

    def finish(self, finish: task_pb2.TaskFinish) -> None:
        """Report the end of an attempt. It is sent again until the server has acknowledged it."""
        ...

    def beat(self, beat: task_pb2.TaskBeat) -> None:
        """Report progress of an attempt. The newest one is sent, before the end."""
        ...

    def stuck(self, count: int) -> None:
        """Report how many abandoned threads use a slot."""
        ...

    def loop_lag(self, milliseconds: int) -> None:
        """Report the lag of the user's event loop."""
        ...

    def record(self, entries: Sequence[NumberedEntry]) -> None:
        """Have entries recorded in the journals of runs, those of one run in their order."""
        ...

    def report_children(self, reports: Sequence[ChildReport]) -> None:
        """Have children of runs stored, or asked to end, those of one run in their order."""
        ...

    def fetch(self, wanted: WantedPage) -> None:
        """Ask for a part of what the server has of a run."""
        ...

    def signal(self, run_id: str, signal: workflow_service_pb2.NewSignal) -> Future[None]:
        """Send a signal to a run, once; a refusal is the ``TenureError`` of the future."""
        ...


class Executor(Protocol):
    """What the connection asks of execution; on the connection's loop only.

    ``worker_id`` is what activities see of the incarnation that they run for. ``is_fenced`` tells
    whether its lease may be over; exclusive work asks it from its own thread.
    """

    worker_id: str
    is_fenced: Callable[[], bool]

    def start(self, task: task_pb2.AssignedTask) -> None:
        """Run an attempt; its end is reported whatever happens."""
        ...

    def stop(self, task_id: str, attempt: int, reason: StopReason) -> None:
        """Ask an attempt to stop. After its grace period it is ended by force, or abandoned."""
        ...

    @property
    def exclusive_types(self) -> frozenset[str]:
        """The types of which no two attempts of one task may run at the same time."""
        ...

    @property
    def exclusive_count(self) -> int:
        """How many exclusive attempts still run, abandoned ones too."""
        ...

    def stop_exclusive(self) -> None:
        """Stop exclusive attempts, because the lease may be over."""
        ...

    def time_out(self, task_id: str, attempt: int) -> None:
        """Stop an exclusive attempt that has timed out by the clock of this worker."""
        ...

    def hand_back(self) -> None:
        """Stop all attempts because the worker ends, and release those that have not ended."""
        ...

    # -- Runs

    def take_entries(
        self, recorded: Sequence[RecordedEntries], pages: Sequence[task_pb2.JournalPage]
    ) -> None:
        """Tell runs what stands in their journals."""
        ...

    def take_answers(self, answered: Sequence[AnsweredReport]) -> None:
        """Tell runs what was done of what they reported of their children."""
        ...

    def refuse_entries(self, task_id: str, attempt: int, error: ErrorDetail) -> None:
        """Tell a run that the server does not take what it reports, now or later."""
        ...

    def session_opened(self) -> None:
        """Let runs ask for what they may have missed without a session."""
        ...

    def renewed(self) -> None:
        """Let runs go on that waited for a certain lease."""
        ...

    def begin_drain(self) -> None:
        """Begin nothing more in runs, and give them back as soon as nothing of them runs."""
        ...

    @property
    def extra_count(self) -> int:
        """How many slots runs take in addition to their own: steps that run side by side."""
        ...

    @property
    def active_count(self) -> int:
        """How many slots are taken, by abandoned threads too."""
        ...

    def runs_task(self, task_id: str) -> bool:
        """Return whether code of an attempt of this task still runs."""
        ...

    async def close(self) -> None:
        """End threads and processes."""
        ...
