"""What can happen to a schedule."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenure.core.schedule.record import FireOutcome, ResumeMode, ScheduleSpec

NewId = Callable[[], str]


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler looks at a schedule that is due. It may fire ``room`` times.

    ``fired`` are ticks beyond the mark that have fired by a backfill. ``owner_id`` is the live run
    that has the external id of the target.
    """

    new_id: NewId
    room: int
    is_disabled: bool = False
    is_last_live: bool = False
    fired: frozenset[int] = frozenset()
    owner_id: str = ""


class PauseRequested(msgspec.Struct, frozen=True, gc=False):
    """Somebody wants it to fire no more for now."""

    note: str = ""


class ResumeRequested(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants it to go on."""

    new_id: NewId
    mode: ResumeMode = ResumeMode.CATCH_UP


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """Its content was put again."""

    new_id: NewId
    spec: ScheduleSpec


class TasksEnded(msgspec.Struct, frozen=True, gc=False):
    """Tasks that it has started have ended, in this order."""

    outcomes: tuple[FireOutcome, ...]


class BreakFound(msgspec.Struct, frozen=True, gc=False):
    """It cannot be stored as it would have to be."""

    error: str


class NamespaceEnabled(msgspec.Struct, frozen=True, gc=False):
    """Its namespace may fire again."""


ScheduleEvent = (
    Looked
    | PauseRequested
    | ResumeRequested
    | Replaced
    | TasksEnded
    | BreakFound
    | NamespaceEnabled
)
