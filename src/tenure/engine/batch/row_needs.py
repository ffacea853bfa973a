"""What the commands of a batch need to have loaded; the rooms say so in ``needs.py``."""

from __future__ import annotations

import msgspec

from tenure.core.task.enqueue_window import NOBODY, EnqueueWindow
from tenure.engine.task.command import ProcessDue
from tenure.engine.worker.command import JudgeLeases
from tenure.store.table.task import TaskKey


class Needs(msgspec.Struct):
    """The union over a batch; every set is loaded by one statement, in one lock order.

    ``finishes`` are the attempts that end. ``births`` are the ids of new tasks that have to be
    looked up; those in ``window`` have not.
    ``administered`` namespaces are read even if they are known. Who changes access
    (``locks_access``) does so alone. Workers that are only ``spoken_for`` are not locked.
    """

    queues: set[tuple[str, str]] = msgspec.field(default_factory=set)
    workers: set[str] = msgspec.field(default_factory=set)
    keys: set[tuple[str, str]] = msgspec.field(default_factory=set)
    tasks: set[TaskKey] = msgspec.field(default_factory=set)
    namespaces: set[str] = msgspec.field(default_factory=set)
    leases: set[str] = msgspec.field(default_factory=set)
    ended_leases: set[str] = msgspec.field(default_factory=set)
    held_of: dict[str, int] = msgspec.field(default_factory=dict)
    registrations: list[tuple[str, str, str]] = msgspec.field(default_factory=list)
    finishes: list[tuple[TaskKey, int]] = msgspec.field(default_factory=list)
    births: set[TaskKey] = msgspec.field(default_factory=set)
    api_keys: set[str] = msgspec.field(default_factory=set)
    administered: set[str] = msgspec.field(default_factory=set)
    spoken_for: set[str] = msgspec.field(default_factory=set)
    locks_access: bool = False
    counts_api_keys: bool = False
    window: EnqueueWindow = NOBODY
    has_young: bool = False
    due: ProcessDue | None = None
    judge: JudgeLeases | None = None
