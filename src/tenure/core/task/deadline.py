"""When something must happen to a task if nothing else happens first.

``due_at_ms`` of a row is the earliest deadline of its state. A deadline that depends on messages of
a worker may be judged only by a server that has been sighted for the whole period.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core.run.record import NOT_BEGUN
from tenure.core.task import exclusive
from tenure.core.task.record import AttemptProgress, Line, Spec, Task, TaskKind, TaskState


class DeadlineKind(enum.Enum):
    """What is due."""

    START = enum.auto()
    WAKE = enum.auto()
    DELIVERY = enum.auto()
    HEARTBEAT = enum.auto()
    CANCEL_GRACE = enum.auto()
    START_TO_CLOSE = enum.auto()
    SCHEDULE_TO_START = enum.auto()
    SCHEDULE_TO_CLOSE = enum.auto()
    RELEASE = enum.auto()


SIGHTED: Final = frozenset(
    {DeadlineKind.DELIVERY, DeadlineKind.HEARTBEAT, DeadlineKind.CANCEL_GRACE, DeadlineKind.RELEASE}
)


class Deadline(msgspec.Struct, frozen=True, gc=False):
    """An instant and the length of the period that ends there.

    Only a server that was sighted for the whole period may judge those that are ``is_sighted``.
    """

    kind: DeadlineKind
    at_ms: int
    period_ms: int
    is_sighted: bool = False

    def judged_at_ms(self, *, now_ms: int, sighted_ms: int) -> int:
        """Return the earliest instant at which this may be judged."""
        is_sighted = self.is_sighted or self.kind in SIGHTED
        if not is_sighted or sighted_ms >= self.period_ms:
            return self.at_ms
        return max(self.at_ms, now_ms + self.period_ms - sighted_ms)


def _pending(task: Task, spec: Spec, progress: AttemptProgress) -> list[Deadline]:
    found = []
    if task.line is Line.NONE:
        found.append(Deadline(DeadlineKind.START, task.run_at_ms, 0))
    if spec.schedule_to_start_ms:
        period_ms = spec.schedule_to_start_ms
        found.append(
            Deadline(DeadlineKind.SCHEDULE_TO_START, progress.ready_at_ms + period_ms, period_ms)
        )
    return found


def _dispatched(task: Task, spec: Spec, progress: AttemptProgress) -> list[Deadline]:
    since_ms, period_ms = task.handed_at_ms, spec.delivery_timeout_ms
    callback = progress.callback
    if callback is not None and callback.accepted_at_ms:
        # The endpoint has the envelope, and its process may take longer to start.
        since_ms, period_ms = callback.accepted_at_ms, callback.times.delivery_timeout_ms
    return [
        Deadline(DeadlineKind.DELIVERY, since_ms + period_ms, period_ms),
        *_start_to_close(task, spec),
    ]


def heartbeat_timeout_ms(spec: Spec, progress: AttemptProgress) -> int:
    """Return how long an attempt may be silent: as its task says, else as its endpoint does."""
    if spec.heartbeat_timeout_ms or progress.callback is None:
        return spec.heartbeat_timeout_ms
    return progress.callback.times.heartbeat_timeout_ms


def _running(task: Task, spec: Spec, progress: AttemptProgress) -> list[Deadline]:
    found = _start_to_close(task, spec)
    period_ms = heartbeat_timeout_ms(spec, progress)
    if period_ms:
        heard_at_ms = max(progress.confirmed_at_ms, progress.exclusive_at_ms, progress.beat_at_ms)
        at_ms = heard_at_ms + period_ms + exclusive.margin_ms(task, period_ms)
        found.append(Deadline(DeadlineKind.HEARTBEAT, at_ms, period_ms))
    if progress.release_at_ms:
        lease_ms = progress.release_lease_ms
        found.append(Deadline(DeadlineKind.RELEASE, progress.release_at_ms, lease_ms))
    return found


def _cancelling(task: Task, spec: Spec, progress: AttemptProgress) -> list[Deadline]:
    found = _running(task, spec, progress)
    # The clean-up of a run may sleep; whoever has no patience terminates it.
    if progress.grace_at_ms and spec.kind is TaskKind.ACTIVITY:
        period_ms = spec.cancel_grace_ms
        found.append(
            Deadline(DeadlineKind.CANCEL_GRACE, progress.grace_at_ms + period_ms, period_ms)
        )
    return found


def _waiting(task: Task, spec: Spec, progress: AttemptProgress) -> list[Deadline]:
    if progress.is_async:
        return _running(task, spec, progress)
    run = progress.run or NOT_BEGUN
    instants = [at_ms for at_ms in (run.wake_at_ms, run.news_at_ms) if at_ms]
    return [Deadline(DeadlineKind.WAKE, min(instants), 0)] if instants else []


def _start_to_close(task: Task, spec: Spec) -> list[Deadline]:
    period_ms = spec.start_to_close_ms
    if not period_ms:
        return []
    since_ms = task.progress.exclusive_at_ms
    if not since_ms:
        return [Deadline(DeadlineKind.START_TO_CLOSE, task.handed_at_ms + period_ms, period_ms)]
    # Its code starts after the confirmation. A changed clock must not end it too early; a live
    # worker ends it in time by itself.
    at_ms = since_ms + period_ms + exclusive.margin_ms(task, period_ms)
    return [Deadline(DeadlineKind.START_TO_CLOSE, at_ms, period_ms, is_sighted=True)]


def _none(_task: Task, _spec: Spec, _progress: AttemptProgress) -> list[Deadline]:
    return []


_BY_STATE: Final = {
    TaskState.PENDING: _pending,
    TaskState.DISPATCHED: _dispatched,
    TaskState.RUNNING: _running,
    TaskState.CANCELLING: _cancelling,
    TaskState.WAITING: _waiting,
    TaskState.PAUSED: _none,
}


def deadlines(task: Task) -> list[Deadline]:
    """Return every deadline that runs in the task's present state."""
    found = _BY_STATE[task.state](task, task.spec, task.progress)
    if task.spec.close_at_ms:
        spec = task.spec
        found.append(
            Deadline(DeadlineKind.SCHEDULE_TO_CLOSE, spec.close_at_ms, spec.schedule_to_close_ms)
        )
    return found


def dispatched_due_ms(spec: Spec, handed_at_ms: int) -> int:
    """Return when a task that is handed out now must be checked: the deadlines of the hot path."""
    period_ms = spec.delivery_timeout_ms
    if 0 < spec.start_to_close_ms < period_ms:
        period_ms = spec.start_to_close_ms
    due_at_ms = handed_at_ms + period_ms
    return min(due_at_ms, spec.close_at_ms) if spec.close_at_ms else due_at_ms


def next_due_ms(task: Task, *, now_ms: int = 0, sighted_ms: int | None = None) -> int | None:
    """Return the earliest instant at which the task must be checked."""
    found = deadlines(task)
    if sighted_ms is None:
        return min((each.at_ms for each in found), default=None)
    return min(
        (each.judged_at_ms(now_ms=now_ms, sighted_ms=sighted_ms) for each in found), default=None
    )


def first_expired(task: Task, *, now_ms: int, sighted_ms: int) -> DeadlineKind | None:
    """Return which deadline has passed: schedule-to-close first, then the earliest."""
    expired = [
        each
        for each in deadlines(task)
        if each.at_ms <= now_ms
        and each.judged_at_ms(now_ms=now_ms, sighted_ms=sighted_ms) <= now_ms
    ]
    if not expired:
        return None
    first = min(
        expired, key=lambda each: (each.kind is not DeadlineKind.SCHEDULE_TO_CLOSE, each.at_ms)
    )
    return first.kind


def attempt_ends_at_ms(task: Task) -> int:
    """Return when the present attempt ends at the latest; 0 if nothing ends it."""
    spec = task.spec
    ends = [spec.close_at_ms] if spec.close_at_ms else []
    if spec.start_to_close_ms:
        ends.append(task.handed_at_ms + spec.start_to_close_ms)
    return min(ends, default=0)


def is_after_close(task: Task, at_ms: int) -> bool:
    """Return whether ``at_ms`` is after the end of schedule-to-close."""
    return 0 < task.spec.close_at_ms <= at_ms


def armed(task: Task) -> Task:
    """Return the task with the earliest deadline of its state."""
    due_at_ms = next_due_ms(task)
    return task if due_at_ms == task.due_at_ms else replace(task, due_at_ms=due_at_ms)


def rearmed(task: Task, now_ms: int, sighted_ms: int) -> Task:
    """Set an early timer again; a deadline that may not be judged yet is checked later."""
    due_at_ms = next_due_ms(task, now_ms=now_ms, sighted_ms=sighted_ms)
    return task if due_at_ms == task.due_at_ms else replace(task, due_at_ms=due_at_ms)
