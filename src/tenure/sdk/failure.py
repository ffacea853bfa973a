"""What can go wrong with a task, on both sides of the wire.

An activity raises ``ApplicationError`` to say how a failure is handled; any other exception is a
failure of user code and is retried. The caller of a task that failed gets ``TaskFailed`` or
a subclass, whose cause is the failure of the last attempt as a ``RemoteError``. The name of a
remote type is text: nothing is ever rebuilt by it.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Final

from tenure.core.limits import ERROR_MESSAGE_BYTES_MAX, STACK_TRACE_BYTES_MAX, TEXT_BYTES_MAX
from tenure.core.task.record import Reason, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.sdk.duration import Duration, delay_ms
from tenure.sdk.payload import Converter, PayloadError, UserValue
from tenure.sdk.progress import HeartbeatDetails, TaskProgress
from tenure.v1 import task_pb2, task_service_pb2

_CATEGORIES: Final = {
    each: task_pb2.ErrorCategory.Value(f"ERROR_CATEGORY_{each.name}") for each in ErrorCategory
}
_CATEGORY_OF: Final[dict[int, ErrorCategory]] = {
    number: each for each, number in _CATEGORIES.items()
}
# What is shown of an exception group: so many exceptions of each, and groups in groups so deep.
_GROUP_SHOWN_MAX: Final = 3
_GROUP_LEVELS_MAX: Final = 3

RUN: Final = "Run"
"""The noun of a run in messages; that of other tasks is ``Task``."""


class ApplicationError(Exception):
    """A failure that an activity describes itself.

    >>> raise ApplicationError("the card is blocked", card, type="CardBlocked", non_retryable=True)

    ``details`` reach the caller typed. ``category`` says whose fault it is: DATA_QUALITY and
    CONFIGURATION are not retried. ``non_retryable`` wins over the category, and
    ``next_retry_delay`` over the back-off of the retry policy.
    """

    def __init__(
        self,
        message: str,
        *details: object,
        type: str = "",
        non_retryable: bool | None = None,
        next_retry_delay: Duration | None = None,
        category: ErrorCategory | str = ErrorCategory.USER_CODE,
    ) -> None:
        """Describe the failure; raise ``ValueError`` for a wrong delay or category."""
        super().__init__(message)
        self.message = message
        self.details = details
        self.type = type or self.__class__.__name__
        self.non_retryable = non_retryable
        self.next_retry_delay_ms = None if next_retry_delay is None else delay_ms(next_retry_delay)
        self.category = ErrorCategory(category)


class RemoteError(Exception):
    """A failure as it happened in a worker: the cause of a ``TaskFailed``.

    ``type`` is the name of the exception there, ``stack_trace`` its whole trace with its causes.
    """

    def __init__(self, error: task_pb2.TaskError, converter: Converter) -> None:
        """Show a failure of the wire."""
        self.message = error.message
        self.type = error.type
        self.category = _CATEGORY_OF.get(error.category, ErrorCategory.USER_CODE)
        self.stack_trace = error.stack_trace
        self._details = error.details
        self._converter = converter
        # An exception without a message has its type in place of one.
        is_typed = self.type not in ("", self.message)
        super().__init__(f"{self.type}: {self.message}" if is_typed else self.message)
        if self.stack_trace:
            self.add_note(f"In the worker:\n{self.stack_trace.rstrip()}")

    def details(self, *types: UserValue) -> tuple[UserValue, ...]:
        """Return the details of the error, each as the type that is given for it."""
        if not self._details:
            if types:
                message = "The error has no details."
                raise PayloadError(message)
            return ()
        return self._converter.decode_details(self._details, *types)


class TaskFailed(Exception):
    """A task ended without success; ``reason`` says why, and the cause is the last failure."""

    def __init__(self, task_id: str, message: str, *, reason: str = "", attempt: int = 0) -> None:
        """Say how the task has ended."""
        super().__init__(message)
        self.task_id = task_id
        self.reason = reason
        self.attempt = attempt

    @property
    def error(self) -> RemoteError | None:
        """The failure of the last attempt, if there was one."""
        return self.__cause__ if isinstance(self.__cause__, RemoteError) else None


class TaskTimedOut(TaskFailed):
    """One of the four timeouts ended the task; its last heartbeat says how far it was."""

    progress: TaskProgress = TaskProgress()
    heartbeat_details: HeartbeatDetails = HeartbeatDetails()


class TaskCancelled(TaskFailed):
    """The task was cancelled."""


class CancelTimedOut(TaskFailed):
    """The task was cancelled, and its activity did not stop within the grace period."""


class TaskTerminated(TaskFailed):
    """An operator ended the task."""


class StepFailed(TaskFailed):
    """A step of a workflow failed for good; ``key`` says which, and the cause is its failure."""

    def __init__(self, key: str, message: str) -> None:
        """Say how the step has ended."""
        super().__init__("", message)
        self.key = key


class ChildFailed(TaskFailed):
    """A child run ended without success; ``state`` says how, and the cause is its failure."""

    def __init__(
        self,
        task_id: str,
        message: str,
        *,
        is_cancelled: bool = False,
        reason: str = "",
        attempt: int = 0,
    ) -> None:
        """Say how the run has ended."""
        super().__init__(task_id, message, reason=reason, attempt=attempt)
        self._is_cancelled = is_cancelled

    @property
    def state(self) -> TaskState:
        """How the run has ended: failed or cancelled."""
        return TaskState.CANCELLED if self._is_cancelled else TaskState.FAILED


class WorkersLost(TaskFailed):
    """Too many workers were lost, or handed the task back, while they held it."""


class TaskPoisoned(TaskFailed):
    """Five workers in a row died while they ran this task alone; it is not tried again."""


class WorkerSuperseded(Exception):
    """Another worker has registered with the same name, so this one stops."""


class WorkerEvicted(Exception):
    """An operator has evicted this worker, so it stops."""


_BY_REASON: Final[dict[str, tuple[type[TaskFailed], str]]] = {
    Reason.RETRIES_EXHAUSTED: (TaskFailed, "failed in its last attempt"),
    Reason.NON_RETRYABLE: (TaskFailed, "failed and is not retried"),
    Reason.SCHEDULE_TO_START: (TaskTimedOut, "was not started within schedule_to_start"),
    Reason.SCHEDULE_TO_CLOSE: (TaskTimedOut, "did not end within schedule_to_close"),
    Reason.START_TO_CLOSE: (TaskTimedOut, "took longer than start_to_close in its last attempt"),
    Reason.HEARTBEAT_TIMEOUT: (
        TaskTimedOut,
        "sent no heartbeat within heartbeat_timeout in its last attempt",
    ),
    Reason.CANCEL_TIMEOUT: (CancelTimedOut, "was cancelled and did not stop within cancel_grace"),
    Reason.POISONED: (
        TaskPoisoned,
        "is not tried again: five workers in a row died while they ran it alone",
    ),
    Reason.INTERRUPTIONS_EXHAUSTED: (WorkersLost, "lost its worker too often"),
    Reason.TERMINATED: (TaskTerminated, "was terminated by an operator"),
}


def from_result(
    result: task_service_pb2.TaskResult, converter: Converter, *, noun: str = "Task"
) -> TaskFailed:
    """Return the exception for a task or, by its ``noun``, a run that ended without success."""
    kind, what = _kind_and_text(result, noun)
    error = RemoteError(result.error, converter) if result.HasField("error") else None
    # The server's own message about a timeout would repeat ``what``.
    is_said = (
        issubclass(kind, TaskTimedOut | CancelTimedOut) and error is not None and not error.type
    )
    if error is not None and error.message and not is_said:
        what = f"{what}: {error}"
    failure = kind(
        result.task_id,
        f"{noun} {result.task_id} {what}",
        reason=result.failure_reason,
        attempt=result.attempt,
    )
    failure.__cause__ = error
    if isinstance(failure, TaskTimedOut):
        percent = result.progress_percent if result.HasField("progress_percent") else None
        failure.progress = TaskProgress(percent, result.progress_message)
        failure.heartbeat_details = HeartbeatDetails(result.heartbeat_details, converter)
    return failure


def _kind_and_text(result: task_service_pb2.TaskResult, noun: str) -> tuple[type[TaskFailed], str]:
    if result.state == task_pb2.TASK_STATE_CANCELLED:
        why = f": {result.cancel_reason}" if result.cancel_reason else ""
        return TaskCancelled, f"was cancelled{why}"
    kind, what = _BY_REASON.get(result.failure_reason, (TaskFailed, "failed"))
    if noun == RUN and kind is TaskFailed:
        # Most runs have one attempt at their result, whatever workers have held them.
        return kind, "failed"
    if noun == RUN and result.failure_reason == Reason.SCHEDULE_TO_CLOSE:
        return kind, "did not end within its timeout"
    return kind, what


def of_step(error: task_pb2.TaskError, key: str, converter: Converter) -> StepFailed:
    """Return the exception for a step whose failure was recorded."""
    cause = RemoteError(error, converter)
    failed = StepFailed(key, f"Step {key} failed: {cause}")
    failed.__cause__ = cause
    return failed


def of_child_run(result: task_service_pb2.TaskResult, converter: Converter) -> ChildFailed:
    """Return the exception for a child run that ended without success."""
    found = from_result(result, converter, noun=RUN)
    failed = ChildFailed(
        result.task_id,
        str(found),
        is_cancelled=result.state == task_pb2.TASK_STATE_CANCELLED,
        reason=found.reason,
        attempt=found.attempt,
    )
    failed.__cause__ = found.__cause__
    return failed


def to_wire(error: BaseException, converter: Converter) -> task_pb2.TaskError:
    """Return an exception of user code as it travels; the trace has its causes in it."""
    wire = task_pb2.TaskError(
        message=_cut(_text(error), ERROR_MESSAGE_BYTES_MAX),
        type=type(error).__name__,
        category=_CATEGORIES[ErrorCategory.USER_CODE],
        stack_trace=_trace(error),
    )
    if isinstance(error, ApplicationError):
        wire.type = _cut(str(error.type), TEXT_BYTES_MAX)
        wire.category = _CATEGORIES[error.category]
        if error.non_retryable is not None:
            wire.retryable = not error.non_retryable
        if error.next_retry_delay_ms is not None:
            wire.next_retry_delay_ms = error.next_retry_delay_ms
        if error.details:
            wire.details = _details(error, converter)
    return wire


def make_error(message: str, type: str, category: ErrorCategory) -> task_pb2.TaskError:
    """Return a failure that was not raised by user code."""
    return task_pb2.TaskError(
        message=_cut(message, ERROR_MESSAGE_BYTES_MAX), type=type, category=_CATEGORIES[category]
    )


def info_of(error: task_pb2.TaskError) -> ErrorInfo:
    """Return what decides whether a failure is followed by another attempt."""
    has_delay = error.HasField("next_retry_delay_ms")
    return ErrorInfo(
        category=_CATEGORY_OF.get(error.category, ErrorCategory.USER_CODE),
        message=error.message,
        type=error.type,
        retryable=error.retryable if error.HasField("retryable") else None,
        next_delay_ms=error.next_retry_delay_ms if has_delay else None,
    )


def _details(error: ApplicationError, converter: Converter) -> bytes:
    try:
        return converter.encode_details(error.details)
    except PayloadError as problem:
        # The failure matters more than its details.
        return converter.encode_details((f"The details cannot be shown. {problem}",))


def _text(error: BaseException, levels: int = _GROUP_LEVELS_MAX) -> str:
    try:
        text = str(error)
    except Exception as problem:  # noqa: BLE001 (a __str__ of a user may raise anything)
        text = f"The message cannot be shown: {type(problem).__name__}"
    if isinstance(error, BaseExceptionGroup) and levels:
        # A task group says no more than how many failures it has.
        text = f"{text}: {_first_of(error.exceptions, levels - 1)}"
    return text or type(error).__name__


def _first_of(errors: Sequence[BaseException], levels: int) -> str:
    """Return what the first of some exceptions are."""
    shown = []
    for each in errors[:_GROUP_SHOWN_MAX]:
        name, text = type(each).__name__, _text(each, levels)
        shown.append(name if text == name else f"{name}: {text}")
    more = ["…"] if len(errors) > _GROUP_SHOWN_MAX else []
    return "; ".join([*shown, *more])


def _trace(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as problem:  # noqa: BLE001 (a __str__ of a user may raise anything)
        text = f"The stack trace cannot be shown: {type(problem).__name__}"
    return _cut(text, STACK_TRACE_BYTES_MAX)


def _cut(text: str, bytes_max: int) -> str:
    """Cut the beginning off a text that is too long; its end says what happened last."""
    # A lone surrogate cannot travel.
    data = text.encode("utf-8", "replace")
    if len(data) > bytes_max:
        data = "…".encode() + data[len(data) - bytes_max + 3 :]
    return data.decode("utf-8", "ignore").replace("\0", "\N{REPLACEMENT CHARACTER}")
