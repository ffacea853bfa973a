"""Calls a sync activity that can be interrupted, in a thread or in a child process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tenure.sdk.activity.context import Stopped, StopReason, enter
from tenure.sdk.activity.definition import Activity
from tenure.sdk.payload import Converter
from tenure.sdk.worker.execution import attempt
from tenure.sdk.worker.execution.attempt import Ending
from tenure.v1 import task_pb2


class Interruptible(Protocol):
    """Code into which ``Stopped`` may be raised, once, between ``arm`` and ``disarm``.

    ``arm`` raises it itself if the stop came earlier. After ``disarm`` it cannot come any more.
    """

    stop_reason: StopReason | None

    def arm(self) -> None:
        """Allow the stop to be raised from now on."""
        ...

    def disarm(self) -> None:
        """Do not allow it to be raised any more."""
        ...


class InterruptibleAttempt(Interruptible, Protocol):
    """An attempt of a task."""

    task: task_pb2.AssignedTask
    activity: Activity[..., Any]
    converter: Converter


class Result:
    """What a function returned, apart from what it raised; neither if it was stopped."""

    __slots__ = ("error", "is_returned", "value")

    def __init__(self) -> None:
        self.is_returned = False
        self.value: object = None
        self.error: BaseException | None = None


def call(execution: InterruptibleAttempt) -> Ending:
    """Run an activity from its input to its ending; the stop never leaves this function."""
    result = run(execution, lambda: _invoke(execution))
    if result.is_returned:
        return attempt.succeeded(execution.task, result.value, execution.converter)
    if result.error is None:
        return None
    return attempt.ended_by(execution.task, result.error, execution.converter)


def run(context: Interruptible, function: Callable[[], object]) -> Result:
    """Call a function; the stop never leaves this function."""
    result = Result()
    try:
        _run(context, function, result)
        context.disarm()
    except Stopped:
        # The stop came outside of user code. It comes only once, so nothing interrupts this again.
        context.disarm()
    if isinstance(result.error, Stopped) and context.stop_reason is not None:
        result.error = None
    return result


def _run(context: Interruptible, function: Callable[[], object], result: Result) -> None:
    try:
        context.arm()
        # The caller runs this in a copied context, which ends with the call.
        enter(context)  # type: ignore[arg-type]
        result.value = function()
        result.is_returned = True
    except BaseException as error:
        result.error = error


def _invoke(execution: InterruptibleAttempt) -> object:
    arguments = attempt.arguments_of(execution.task, execution.activity, execution.converter)
    return execution.activity.invoke(arguments)
