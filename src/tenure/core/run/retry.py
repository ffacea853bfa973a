"""A new run from a finished one: how much of its journal is kept, and what the new one knows."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenure.core.journal.entry import Entry, EntryKind
from tenure.core.run import start
from tenure.core.run.record import NOT_BEGUN, Origin, RunLink, encode_origin
from tenure.core.task.record import Task, TaskState
from tenure.errors import InvalidArgument, NotFound

LAST: Final = "last"
"""In place of the key of a call: the failure that ended the run."""

_ENDS: Final = frozenset({EntryKind.STEP, EntryKind.CHILD, EntryKind.GROUP})
# What a call leaves in the journal, under its key.
_OF_CALLS: Final = _ENDS | {EntryKind.TIMER, EntryKind.PATCH, EntryKind.RETRY, EntryKind.BEGUN}


class JournalOutline:
    """What has to be known of a finished journal to cut it; its entries are shown one by one."""

    def __init__(self) -> None:
        """Start with an empty journal."""
        self.end = 0
        self._first_of: dict[str, int] = {}
        self._group_at: dict[str, int] = {}
        self._last_failed: str | None = None
        self._cancel_pos: int | None = None

    def show(self, entry: Entry) -> None:
        """Take in the next entry."""
        self.end = entry.pos
        if entry.kind in _OF_CALLS:
            self._first_of.setdefault(entry.key, entry.pos)
        if entry.kind in _ENDS and entry.content.error is not None:
            self._last_failed = entry.key
        if entry.kind is EntryKind.GROUP:
            self._group_at[entry.key] = entry.pos
        if entry.kind is EntryKind.CANCEL:
            self._cancel_pos = entry.pos

    def groups(self, kept: int) -> tuple[str, ...]:
        """Return the calls among the first entries whose results are in journals of their own."""
        return tuple([key for key, pos in self._group_at.items() if pos <= kept])

    def kept(self, run: Task, *, from_step: str = "", from_position: int = 0) -> int:
        """Return how many entries a new run keeps: those before what it shall do again."""
        if not from_step and not from_position:
            return 0
        if not self.end:
            message = (
                f"Run {run.id} has no journal: nothing was recorded, or it was kept long enough. "
                "Retry it without a step: the new run begins from the start."
            )
            raise NotFound(message)
        cut = from_position or self._cut_at(run, from_step)
        field = "fromPosition" if from_position else "fromStep"
        if cut > self.end + 1:
            message = f"fromPosition must be at most {self.end + 1}: run {run.id} has {self.end}"
            raise InvalidArgument(f"{message} entries", field=field)
        if self._cancel_pos is not None and cut > self._cancel_pos:
            message = (
                f"Run {run.id} was asked to cancel at position {self._cancel_pos}, and the new run "
                "would be too. Retry it from there or from before"
            )
            raise InvalidArgument(message, field=field)
        return cut - 1

    def _cut_at(self, run: Task, from_step: str) -> int:
        if from_step == LAST:
            return self._cut_at_last(run)
        if from_step in self._first_of:
            return self._first_of[from_step]
        message = (
            f"Run {run.id} has recorded no call {from_step!r}. Its calls: tenure runs show {run.id}"
        )
        raise InvalidArgument(message, field="fromStep")

    def _cut_at_last(self, run: Task) -> int:
        if run.state is TaskState.SUCCEEDED:
            message = f"Run {run.id} has succeeded: name the step or the position to go on from"
            raise InvalidArgument(message, field="fromStep")
        if self._cancel_pos is not None:
            return self._cancel_pos
        if self._last_failed is not None:
            return self._first_of[self._last_failed]
        # No call has failed: its code did, with all that is recorded.
        return self.end + 1


def create(old: Task, *, task_id: str, now_ms: int, journal_id: str, kept: int) -> Task:
    """Return a new run with the request of a finished one, its external id, and its own journal.

    Idempotency keys are those of the first run of its line, so the generation stays. With entries
    that are kept goes the time at which that generation began.
    """
    assert old.link is not None
    again = start.again(old, task_id=task_id, now_ms=now_ms, journal_id=journal_id)
    origin = Origin(first_run_id=old.link.place.first_run_id or old.id)
    link = RunLink(
        journal_id=journal_id, external_id=old.link.external_id, origin=encode_origin(origin)
    )
    before = old.progress.run or NOT_BEGUN
    begun = replace(
        NOT_BEGUN, generation=before.generation, begun_at_ms=before.begun_at_ms if kept else 0
    )
    return replace(again, link=link, progress=replace(again.progress, run=begun))
