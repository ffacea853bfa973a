"""The attempts of a run's steps, as its journal and its open children tell them.

A step is a local call, a queued activity, a child run or a map. What a run sleeps and waits for is
in its journal alone.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from tenure.core import check
from tenure.core.group.record import Group
from tenure.core.journal.entry import Entry, EntryKind
from tenure.core.limits import ATTEMPT_MAX
from tenure.core.run.record import NOT_BEGUN
from tenure.core.task.attempt import UNRECORDED, Attempt, Outcome
from tenure.core.task.record import Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.errors import InvalidArgument

_WHOLE: Final = re.compile("[0-9]{1,10}")


class StepStatus(enum.StrEnum):
    """How an attempt of a step stands; the wire names are upper case."""

    # A queued step that no worker has.
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    # Its worker was lost, or gave it back: that says nothing about the step.
    INTERRUPTED = "interrupted"


class StepKind(enum.StrEnum):
    """What a step is."""

    LOCAL = "local"
    CHILD = "child"
    MAP = "map"


class MapCounts(msgspec.Struct, frozen=True, gc=False):
    """How the items of a map have ended so far."""

    total: int
    succeeded: int
    failed: int
    cancelled: int


class StepAttempt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One attempt of a step. Instants that are not known are 0.

    ``place`` is its part of the id: the position of its entry or, while it has none, the id of its
    task or group, and of a queued step ``.`` and ``number``.
    """

    run_id: str
    generation: int
    place: str
    step_id: str
    number: int
    kind: StepKind
    status: StepStatus
    task_id: str = ""
    worker_id: str = ""
    input: bytes | None = None
    input_encoding: str = ""
    output: bytes | None = None
    encoding: str = ""
    error: ErrorInfo | None = None
    started_at_ms: int = 0
    finished_at_ms: int = 0
    retry_at_ms: int = 0
    site: str = ""
    counts: MapCounts | None = None

    @property
    def id(self) -> str:
        """Return the id by which it is asked for."""
        return f"{self.run_id}.{self.generation}.{self.place}"

    @property
    def size(self) -> int:
        """Return how many bytes its payloads have."""
        error = self.error
        told = 0 if error is None else len(error.message) + len(error.stack_trace)
        return told + len(self.output or b"")


class StepRef(msgspec.Struct, frozen=True, gc=False):
    """What an id says: of which call of a run, by position or task, and which attempt of it."""

    run_id: str
    generation: int
    pos: int = 0
    task_id: str = ""
    number: int | None = None


class StepsOf(msgspec.Struct, frozen=True, gc=False):
    """Whose steps are told: a run with its present journal."""

    run: Task
    journal_id: str

    @property
    def generation(self) -> int:
        """Return how often the run has begun anew."""
        return (self.run.progress.run or NOT_BEGUN).generation

    def is_reported_by_holder(self, entry: Entry) -> bool:
        """Tell whether the worker that has reported an entry still holds the run."""
        return self.run.worker_id is not None and entry.attempt == self.run.attempt


def read_id(given: str) -> StepRef:
    """Return what an id says; every other text is refused."""
    run_id, _, rest = given.partition(".")
    generation, _, rest = rest.partition(".")
    place, dot, number = rest.partition(".")
    check.task_id(run_id, "stepAttemptId")
    ref = StepRef(run_id, _whole(generation), number=_whole(number) if dot else None)
    if "-" in place:
        return msgspec.structs.replace(ref, task_id=check.task_id(place, "stepAttemptId"))
    return msgspec.structs.replace(ref, pos=_whole(place, 1))


def _whole(text: str, least: int = 0) -> int:
    if _WHOLE.fullmatch(text) and least <= int(text) <= ATTEMPT_MAX:
        return int(text)
    message = "stepAttemptId must be RUN.GENERATION.POSITION, of a queued step also .ATTEMPT"
    raise InvalidArgument(message, field="stepAttemptId")


_ENDS: Final = {
    TaskState.SUCCEEDED: StepStatus.COMPLETED,
    TaskState.FAILED: StepStatus.FAILED,
    TaskState.CANCELLED: StepStatus.CANCELLED,
}
_STATUS_AT: Final[dict[Outcome, StepStatus]] = {
    Outcome.SUCCEEDED: StepStatus.COMPLETED,
    Outcome.FAILED: StepStatus.FAILED,
    Outcome.TIMED_OUT: StepStatus.FAILED,
    Outcome.WORKER_LOST: StepStatus.INTERRUPTED,
    Outcome.LOST_TASK: StepStatus.INTERRUPTED,
    Outcome.UNDELIVERED: StepStatus.INTERRUPTED,
    Outcome.RELEASED: StepStatus.INTERRUPTED,
    # What child runs do between their hand-outs.
    Outcome.YIELDED: StepStatus.INTERRUPTED,
    Outcome.SLEPT: StepStatus.INTERRUPTED,
    Outcome.PARKED: StepStatus.INTERRUPTED,
    Outcome.CONTINUED: StepStatus.INTERRUPTED,
    Outcome.CANCELLED: StepStatus.CANCELLED,
    Outcome.CANCEL_TIMEOUT: StepStatus.CANCELLED,
}


def recorded(of: StepsOf, entry: Entry) -> StepAttempt | None:
    """Return the attempt whose end an entry is; ``None`` if nothing was attempted."""
    match entry.kind:
        case EntryKind.STEP | EntryKind.RETRY:
            return _local_end(of, entry)
        case EntryKind.CHILD:
            return _child_end(of, entry)
        case EntryKind.GROUP:
            return _map_end(of, entry)
        case _:
            return None


def _local_end(of: StepsOf, entry: Entry) -> StepAttempt | None:
    body = entry.content
    is_retry = entry.kind is EntryKind.RETRY
    if is_retry and not body.attempts:
        # It was put off before it began.
        return None
    return StepAttempt(
        run_id=of.run.id,
        generation=of.generation,
        place=str(entry.pos),
        step_id=entry.key,
        number=max(body.attempts, 1),
        kind=StepKind.LOCAL,
        status=StepStatus.FAILED if is_retry else _status_of(body.error),
        output=body.output,
        encoding=body.encoding,
        error=body.error,
        started_at_ms=body.started_at_ms,
        finished_at_ms=entry.at_ms,
        retry_at_ms=body.next_at_ms,
        site=body.site,
    )


def _status_of(error: ErrorInfo | None) -> StepStatus:
    if error is None:
        return StepStatus.COMPLETED
    is_cancel = error.category is ErrorCategory.CANCELLED
    return StepStatus.CANCELLED if is_cancel else StepStatus.FAILED


def _child_end(of: StepsOf, entry: Entry) -> StepAttempt:
    body = entry.content
    return StepAttempt(
        run_id=of.run.id,
        generation=of.generation,
        place=f"{entry.pos}.{body.attempts}",
        step_id=entry.key,
        number=body.attempts,
        kind=StepKind.CHILD,
        status=_ENDS[TaskState(body.state)],
        task_id=body.task_id,
        output=body.output,
        encoding=body.encoding,
        error=body.error,
        started_at_ms=body.started_at_ms,
        finished_at_ms=entry.at_ms,
    )


def _map_end(of: StepsOf, entry: Entry) -> StepAttempt:
    body = entry.content
    return StepAttempt(
        run_id=of.run.id,
        generation=of.generation,
        place=str(entry.pos),
        step_id=entry.key,
        number=1,
        kind=StepKind.MAP,
        status=_status_of(body.error),
        error=body.error,
        finished_at_ms=entry.at_ms,
        counts=MapCounts(body.total, body.succeeded, body.failed, body.cancelled),
    )


def begun(of: StepsOf, entry: Entry, following: Entry | None) -> StepAttempt | None:
    """Return the attempt that an entry says has begun; ``None`` if the following one is its end.

    ``following`` is the next entry of the same step by the same attempt of the run. A sleep that
    has begun is no attempt.
    """
    body = entry.content
    if body.fire_at_ms:
        return None
    number = max(body.attempts, 1)
    status = StepStatus.INTERRUPTED
    if following is None:
        if of.is_reported_by_holder(entry):
            status = StepStatus.RUNNING
    else:
        next_number = max(following.content.attempts, 1)
        if next_number == number and following.kind is not EntryKind.BEGUN:
            return None
        if next_number > number:
            # It was tried again at once, and only the last failure is recorded.
            status = StepStatus.FAILED
    return StepAttempt(
        run_id=of.run.id,
        generation=of.generation,
        place=str(entry.pos),
        step_id=entry.key,
        number=number,
        kind=StepKind.LOCAL,
        status=status,
        worker_id=of.run.worker_id or "" if status is StepStatus.RUNNING else "",
        started_at_ms=body.started_at_ms,
        site=body.site,
    )


def ended_before(last: StepAttempt, attempt: Attempt) -> StepAttempt:
    """Return an attempt of a queued step that was not its last one."""
    return StepAttempt(
        run_id=last.run_id,
        generation=last.generation,
        place=f"{last.place.partition('.')[0]}.{attempt.number}",
        step_id=last.step_id,
        number=attempt.number,
        kind=last.kind,
        status=_STATUS_AT[attempt.outcome],
        task_id=last.task_id,
        worker_id=attempt.worker_id or "",
        error=attempt.error,
        started_at_ms=attempt.handed_at_ms,
        finished_at_ms=attempt.ended_at_ms,
    )


def of_child(of: StepsOf, child: Task) -> StepAttempt:
    """Return the last attempt of a queued step as its own row tells it.

    Of one that no worker has it is the next attempt. A child run that waits goes on with its last.
    """
    is_live = child.finished_at_ms is None
    is_between = child.attempt > 0 and child.last_outcome in UNRECORDED
    is_pending = is_live and not child.is_attempt_live and not is_between
    number = child.attempt + is_pending
    live = StepStatus.PENDING if is_pending else StepStatus.RUNNING
    return StepAttempt(
        run_id=of.run.id,
        generation=of.generation,
        place=f"{child.id}.{number}",
        step_id=child.place.key,
        number=number,
        kind=StepKind.CHILD,
        status=live if is_live else _ENDS[child.state],
        task_id=child.id,
        worker_id=child.worker_id or "",
        output=child.output,
        encoding=child.output_encoding,
        error=None if is_live else child.progress.error,
        started_at_ms=0 if is_pending else child.handed_at_ms,
        finished_at_ms=child.finished_at_ms or 0,
        retry_at_ms=child.progress.ready_at_ms if is_pending else 0,
    )


def of_map(of: StepsOf, group: Group) -> StepAttempt:
    """Return a map that goes on."""
    counts = (group.total, group.succeeded_count, group.failed_count, group.cancelled_count)
    return StepAttempt(
        run_id=of.run.id,
        generation=of.generation,
        place=group.group_id,
        step_id=group.key,
        number=1,
        kind=StepKind.MAP,
        status=StepStatus.RUNNING,
        counts=MapCounts(*counts),
    )
