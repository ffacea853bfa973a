"""What a cancel request does to a run: an entry of its journal, and time for its clean-up."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.run import wake_up
from tenure.core.task import attempt_end, deadline
from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import Decision, TellCancel
from tenure.core.task.record import Reason, Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo

CANCEL_KEY: Final = "cancel"
_UNASKED: Final = ErrorInfo(
    ErrorCategory.CANCELLED, "The workflow was cancelled from within: nobody had asked for it."
)


def cancel(requested: Task, reason: str, now_ms: int) -> Decision:
    """Let a run hear of a request by its journal; one that was never handed out ends at once.

    It is delivered at the same place on each re-run. There is no grace: a clean-up may sleep.
    """
    if requested.attempt == 0:
        return attempt_end.finish(requested, TaskState.CANCELLED, now_ms, Outcome.CANCELLED)
    error = ErrorInfo(ErrorCategory.CANCELLED, reason) if reason else None
    entry = NewEntry(EntryKind.CANCEL, CANCEL_KEY, EntryBody(error=error))
    if requested.worker_id is None:
        return replace(attempt_end.ready(requested, now_ms), entries=(entry,))
    # An unconfirmed hand-out stays one, so that its delivery is still looked at.
    is_running = requested.state is TaskState.RUNNING
    told = replace(requested, state=TaskState.CANCELLING) if is_running else requested
    worker_id = requested.worker_id
    effects = (
        TellCancel(worker_id, requested.id, requested.attempt),
        wake_up.tell(requested, worker_id),
    )
    return Decision(deadline.armed(told), effects=effects, entries=(entry,))


def cancelled(task: Task, now_ms: int) -> Decision:
    """End a run whose body was cancelled; if nobody had asked for that, it has failed."""
    if task.is_cancel_requested:
        return attempt_end.finish(task, TaskState.CANCELLED, now_ms, Outcome.CANCELLED)
    # The attempt ended as it was reported, so that the same report is known again.
    return attempt_end.fail(task, Reason.NON_RETRYABLE, Outcome.CANCELLED, _UNASKED, now_ms)
