"""Calls a sync activity that can be interrupted, in a thread or in a child process."""

from __future__ import annotations

from typing import Any, Protocol

from tenure.sdk.activity.context import Stopped, StopReason, enter
from tenure.sdk.activity.definition import Activity
from tenure.sdk.payload import Converter
from tenure.sdk.worker.execution import attempt
from tenure.sdk.worker.execution.attempt import Ending
from tenure.v1 import task_pb2


class Interruptible(Protocol):
    """An attempt into whose code ``Stopped`` may be raised, once, between ``arm`` and ``disarm``.

    ``arm`` raises it itself if the stop came earlier. After ``disarm`` it cannot come any more.
    """

    task: task_pb2.AssignedTask
    activity: Activity[..., Any]
    converter: Converter
    stop_reason: StopReason | None

    def arm(self) -> None:
        """Allow the stop to be raised from now on."""
        ...

    def disarm(self) -> None:
        """Do not allow it to be raised any more."""
        ...


class _Result:
    """What the function returned, apart from what it raised."""

    __slots__ = ("error", "is_returned", "value")

    def __init__(self) -> None:
        self.is_returned = False
        self.value: object = None
        self.error: BaseException | None = None


def call(execution: Interruptible) -> Ending:
    """Run an activity from its input to its ending; the stop never leaves this function."""
    result = _Result()
    try:
        _invoke(execution, result)
        execution.disarm()
    except Stopped:
        # The stop came outside of user code. It comes only once, so nothing interrupts this again.
        execution.disarm()
    if result.is_returned:
        return attempt.succeeded(execution.task, result.value, execution.converter)
    error = result.error
    if error is None or (isinstance(error, Stopped) and execution.stop_reason is not None):
        return None
    return attempt.ended_by(execution.task, error, execution.converter)


def _invoke(execution: Interruptible, result: _Result) -> None:
    try:
        execution.arm()
        # The caller runs this in a copied context, which ends with the call.
        enter(execution)  # type: ignore[arg-type]
        arguments = attempt.arguments_of(execution.task, execution.activity, execution.converter)
        result.value = execution.activity.invoke(arguments)
        result.is_returned = True
    except BaseException as error:
        result.error = error
