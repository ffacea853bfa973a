"""What runs ask about children: to make them, and to end them."""

from __future__ import annotations

import msgspec

from tenure.core.run.record import ClosePolicy
from tenure.core.task.record import NewTask
from tenure.engine.command import Command, WorkDone
from tenure.errors import Rejection


class NewChild(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A task or a run that a run makes, and the call that makes it; ``item`` is of a group."""

    new: NewTask
    key: str = ""
    index: int = 0
    item: int = 0
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    external_id: str = ""


class SpawnReport(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Children that the holder of a run makes: all of them are stored, or none.

    With a ``group_key`` they are items of one call. ``number`` is the holder's own, to find the
    answer.
    """

    task_id: str
    attempt: int
    number: int
    children: tuple[NewChild, ...]
    group_key: str = ""
    group_index: int = 0
    group_total: int = 0
    fails_fast: bool = False


class ChildCancel(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Open children of a run that it asks to end: by their ids, or all items of a group."""

    task_id: str
    attempt: int
    number: int
    child_ids: tuple[str, ...] = ()
    group_key: str = ""
    reason: str = ""


ChildAnswer = Rejection | None
"""One item's answer: nothing if it is done, also if it was done before."""


class SpawnTasks(Command[tuple[ChildAnswer, ...]], frozen=True, kw_only=True):
    """Workers make children of runs that they hold."""

    namespace: str
    worker_id: str
    items: tuple[SpawnReport, ...]
    speaker: str | None = None


class CancelChildren(Command[tuple[ChildAnswer, ...]], frozen=True, kw_only=True):
    """Workers end children of runs that they hold."""

    namespace: str
    worker_id: str
    items: tuple[ChildCancel, ...]
    speaker: str | None = None


class CloseChildren(Command[WorkDone], frozen=True, kw_only=True):
    """Close live children of a run or a group that has ended, by their policies."""

    amount: int
