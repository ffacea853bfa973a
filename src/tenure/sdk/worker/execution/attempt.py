"""One attempt in messages of the protocol: what user code sees of it, and how it ended.

Used where the activity runs, in the worker and in its child processes alike.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from tenure.core.limits import PAYLOAD_BYTES_MAX
from tenure.core.task.retry import ErrorCategory
from tenure.sdk import failure
from tenure.sdk.activity.context import CompletesLater, Info, StopReason
from tenure.sdk.activity.definition import Activity, signature_of
from tenure.sdk.instant import datetime_of, timedelta_of
from tenure.sdk.payload import Converter, Payload, PayloadError
from tenure.v1 import task_pb2

SUCCEEDED: Final = task_pb2.FINISH_KIND_SUCCEEDED
FAILED: Final = task_pb2.FINISH_KIND_FAILED
CANCELLED: Final = task_pb2.FINISH_KIND_CANCELLED
RELEASED: Final = task_pb2.FINISH_KIND_RELEASED
DEFERRED: Final = task_pb2.FINISH_KIND_DEFERRED

Ending = task_pb2.TaskFinish | None
"""How user code ended; None if it was stopped by the exception that was raised in it."""


class BadInputError(Exception):
    """The input does not fit the parameters of the activity."""


class BadResultError(Exception):
    """The activity returned a value that cannot be sent."""


class BadSetupError(Exception):
    """The activity cannot be run here at all."""


# The category, if no code of the activity has failed. A retry helps none of them.
_OURS: Final[dict[type[BaseException], task_pb2.ErrorCategory.ValueType]] = {
    BadInputError: task_pb2.ERROR_CATEGORY_DATA_QUALITY,
    BadResultError: task_pb2.ERROR_CATEGORY_USER_CODE,
    BadSetupError: task_pb2.ERROR_CATEGORY_CONFIGURATION,
}


def info_of(task: task_pb2.AssignedTask, namespace: str, worker_id: str) -> Info:
    """Return an attempt as its activity sees it."""
    return Info(
        task_id=task.task_id,
        attempt=task.attempt,
        type=task.type,
        queue=task.task_queue,
        namespace=namespace,
        worker_id=worker_id,
        failure_count=task.failure_count,
        max_attempts=task.maximum_attempts,
        priority=task.priority,
        labels=dict(task.labels),
        start_to_close=timedelta_of(task.start_to_close_ms),
        schedule_to_close=timedelta_of(task.schedule_to_close_ms),
        heartbeat_timeout=timedelta_of(task.heartbeat_timeout_ms),
        heartbeat_interval=timedelta_of(task.heartbeat_interval_ms),
        cancel_grace=timedelta_of(task.cancel_grace_period_ms),
        created_at=datetime_of(task.created_at_ms),
        handed_at=datetime_of(task.handed_at_ms),
        deadline_at=datetime_of(task.deadline_at_ms),
        task_token=task.task_token,
        user_key=task.idempotency_key or task.step_key,
        run_id=task.run_id,
        parent_id=task.parent_id,
        schedule_id=task.schedule_id,
        fire_at=datetime_of(task.fire_at_ms),
    )


def details_of(task: task_pb2.AssignedTask) -> bytes | None:
    """Return the heartbeat details of an earlier attempt, if there are any."""
    return task.heartbeat_details if task.HasField("heartbeat_details") else None


def arguments_of(
    task: task_pb2.AssignedTask, activity: Activity[..., Any], converter: Converter
) -> dict[str, Any]:
    """Return the arguments of a task; raise ``BadInputError`` for those that do not fit."""
    try:
        return signature_of(activity).decode(converter, Payload(task.encoding, task.input))
    except PayloadError as error:
        raise BadInputError(f"The input does not fit activity {activity.name}: {error}") from error


def succeeded(
    task: task_pb2.AssignedTask, result: object, converter: Converter
) -> task_pb2.TaskFinish:
    """Return a success, or the failure to send the result."""
    return returned(task, lambda: converter.encode(result), converter)


def returned(
    task: task_pb2.AssignedTask,
    make: Callable[[], Payload],
    converter: Converter,
    *,
    what: str = "activity",
) -> task_pb2.TaskFinish:
    """Return a success with the payload that ``make`` makes, or the failure to make it."""
    try:
        payload = checked(make, what)
    except Exception as error:
        return ended_by(task, error, converter)
    finish = task_pb2.TaskFinish(
        task_id=task.task_id, attempt=task.attempt, kind=SUCCEEDED, output=payload.data
    )
    if payload.encoding != task.encoding:
        finish.output_encoding = payload.encoding
    return finish


def checked(make: Callable[[], Payload], what: str) -> Payload:
    """Return the payload that ``make`` makes; raise ``BadResultError`` if it cannot be sent."""
    try:
        payload = make()
        if len(payload.data) > PAYLOAD_BYTES_MAX:
            message = (
                f"It has {len(payload.data):,} bytes, and {PAYLOAD_BYTES_MAX:,} are allowed: "
                "store it elsewhere and return where it is."
            )
            raise PayloadError(message)  # noqa: TRY301 (both problems have one answer)
    except PayloadError as error:
        message = f"The {what} ran, but its result cannot be sent. {error}"
        raise BadResultError(message) from error
    return payload


def ended_by(
    task: task_pb2.AssignedTask, error: BaseException, converter: Converter
) -> task_pb2.TaskFinish:
    """Return the ending for an exception that the activity raised."""
    if isinstance(error, CompletesLater):
        return ended_as(task, DEFERRED)
    return failed(task, error_of(error, converter))


def error_of(error: BaseException, converter: Converter) -> task_pb2.TaskError:
    """Return an exception that user code raised, as it travels."""
    has_frames = _skip_own_frames(error)
    try:
        wire = failure.to_wire(error, converter)
    except Exception as problem:
        message = f"The failure itself cannot be shown: {type(problem).__name__}"
        wire = failure.make_error(message, "Unspeakable", ErrorCategory.USER_CODE)
    if not has_frames:
        # The message is enough. Frames of the SDK would only hide it.
        wire.stack_trace = ""
    category = _OURS.get(type(error))
    if category is not None:
        wire.type = type(error).__name__.removesuffix("Error")
        wire.category = category
        wire.retryable = False
    if len(wire.details) > PAYLOAD_BYTES_MAX:
        # The failure is reported without its details.
        wire.details = converter.encode_details(("The details were too large to be sent.",))
    return wire


def failed(task: task_pb2.AssignedTask, error: task_pb2.TaskError) -> task_pb2.TaskFinish:
    """Return a failure."""
    return task_pb2.TaskFinish(task_id=task.task_id, attempt=task.attempt, kind=FAILED, error=error)


def ended_as(
    task: task_pb2.AssignedTask, kind: task_pb2.FinishKind.ValueType
) -> task_pb2.TaskFinish:
    """Return an end of a kind that has no payload."""
    return task_pb2.TaskFinish(task_id=task.task_id, attempt=task.attempt, kind=kind)


def report_of(
    task: task_pb2.AssignedTask, ending: Ending, reason: StopReason | None, *, is_over: bool
) -> Ending:
    """Return the report of an attempt that was asked to stop, if the server needs one.

    ``is_over`` says that the server has ended the attempt itself and waits for no report.
    """
    if is_over:
        return None
    if ending is not None and ending.kind != FAILED:
        # It ended by itself in spite of the stop. The server decides whether that counts.
        return ending
    if reason is StopReason.CANCELLED:
        return ending or ended_as(task, CANCELLED)
    if reason is StopReason.TIMED_OUT:
        message = "The attempt took longer than it may (start_to_close); its worker stopped it."
        return failed(task, failure.make_error(message, "TimedOut", ErrorCategory.TIMEOUT))
    if reason is None:
        assert ending is not None, "only a stop can be let through"
        return ending
    # A failure during the stop is not charged: another worker starts again.
    return ended_as(task, RELEASED)


def _skip_own_frames(error: BaseException) -> bool:
    """Cut each trace to the user's code; return whether there is any."""
    has_frames = False
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        first: TracebackType | None = link.__traceback__
        while first is not None and _is_own(first):
            first = first.tb_next
        link.__traceback__ = first
        has_frames = has_frames or first is not None
        link = link.__cause__ or link.__context__
    return has_frames


def _is_own(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith("tenure.sdk.")
