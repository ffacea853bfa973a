"""What all commands share. The commands of a noun are in its room, in ``command.py``.

A command is a small immutable value with one answer; ``Command[Answer]`` says which. The
``speaker`` of a worker's command is the API key that has to be the worker's own. ``None`` may
act for every worker: an administrator, the engine itself, or a caller that was checked before.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Command(msgspec.Struct, Generic[Answer_co], frozen=True, gc=False):
    """A request to the engine, with an ``Answer``."""


AnyCommand = Command[object]


class TaskRef(msgspec.Struct, frozen=True, gc=False):
    """One attempt of one task."""

    task_id: str
    attempt: int


class WorkDone(msgspec.Struct, frozen=True, gc=False):
    """How many rows a service's command changed, and whether more may be left.

    ``kept_count`` were read and stay as they are, for now.
    """

    count: int
    has_more: bool = False
    kept_count: int = 0
