"""The commands of callbacks; the edge has verified the task token of each."""

from __future__ import annotations

import msgspec

from tenure.core.task.callback import CallbackReport
from tenure.core.task.record import Task
from tenure.engine.command import Command, TaskRef
from tenure.engine.task.command import Finish, Reported, TaskBeat


class CallbackAnswer(msgspec.Struct, frozen=True, gc=False):
    """What was answered to the report, and the task after it."""

    reported: Reported
    task: Task


class StartCallback(Command[CallbackAnswer], frozen=True, kw_only=True):
    """A process has begun its attempt. ``run_id`` is that of the token, here and below."""

    namespace: str
    run_id: str
    item: TaskRef
    said: CallbackReport


class BeatCallback(Command[CallbackAnswer], frozen=True, kw_only=True):
    """A process makes progress."""

    namespace: str
    run_id: str
    item: TaskBeat


class CompleteCallback(Command[CallbackAnswer], frozen=True, kw_only=True):
    """A process has ended its attempt."""

    namespace: str
    run_id: str
    item: Finish
