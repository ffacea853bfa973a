"""The bodies of requests about tasks, and their conversion."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from tenure.api.http.body import EPOCH, Body, DryRunBody, Duration, given_or
from tenure.core import check, limits
from tenure.core.task.record import NewTask, Spec
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument

JSON_ENCODING: Final = "json"
Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
Priority = Annotated[
    int,
    Meta(ge=limits.PRIORITY_MIN, le=limits.PRIORITY_MAX, description="0 first, 9 last, default 5"),
]


class RetryBody(Body, frozen=True):
    """How failures are retried."""

    initial_interval_ms: Duration | UnsetType = UNSET
    backoff_coefficient: (
        Annotated[float, Meta(ge=1, le=limits.BACKOFF_COEFFICIENT_MAX)] | UnsetType
    ) = UNSET
    maximum_interval_ms: (
        Annotated[int, Meta(ge=0, le=limits.DURATION_MS_MAX, description="0 means 100 x initial")]
        | UnsetType
    ) = UNSET
    maximum_attempts: (
        Annotated[int, Meta(ge=0, le=limits.ATTEMPT_MAX, description="0 means no limit")]
        | UnsetType
    ) = UNSET
    non_retryable_error_types: (
        Annotated[list[str], Meta(max_length=limits.NON_RETRYABLE_TYPES_MAX)] | UnsetType
    ) = UNSET

    def policy(self) -> RetryPolicy:
        """Return the policy; fields that are not given have their defaults."""
        default = RetryPolicy()
        return RetryPolicy(
            given_or(self.initial_interval_ms, default.initial_interval_ms),
            given_or(self.backoff_coefficient, default.backoff_coefficient),
            given_or(self.maximum_interval_ms, default.maximum_interval_ms),
            given_or(self.maximum_attempts, default.maximum_attempts),
            tuple(given_or(self.non_retryable_error_types, [])),
        )


class TaskBody(Body, frozen=True):
    """A task to enqueue. One of startToCloseMs and scheduleToCloseMs is required."""

    type: str
    queue: str
    input: Annotated[Raw, Meta(description="Any JSON; stored byte for byte")] | UnsetType = UNSET
    input_base64: Base64 | UnsetType = msgspec.field(default=UNSET, name="inputBase64")
    encoding: Annotated[str, Meta(description="Of inputBase64; input is JSON")] | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    run_at: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET
    schedule_to_start_ms: Duration | UnsetType = UNSET
    schedule_to_close_ms: Duration | UnsetType = UNSET
    start_to_close_ms: Duration | UnsetType = UNSET
    heartbeat_timeout_ms: Duration | UnsetType = UNSET
    heartbeat_interval_ms: Duration | UnsetType = UNSET
    cancel_grace_period_ms: Duration | UnsetType = UNSET
    delivery_timeout_ms: (
        Annotated[int, Meta(ge=1, le=limits.DELIVERY_TIMEOUT_MAX_MS)] | UnsetType
    ) = UNSET
    retry: RetryBody | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    resources: dict[str, str] | UnsetType = UNSET
    task_id: Annotated[str, Meta(description="Made by the client: a UUIDv7")] | UnsetType = UNSET

    def new_task(self, made_id: str) -> NewTask:
        """Return the requested task; ``made_id`` is its id unless the client chose one."""
        data, encoding = encoded_payload(
            self.input, self.input_base64, self.encoding, field="input"
        )
        return NewTask(
            id=given_or(self.task_id, made_id),
            type=self.type,
            queue=self.queue,
            spec=self._spec(encoding),
            input=data,
            priority=given_or(self.priority, limits.PRIORITY_DEFAULT),
            run_at_ms=0 if self.run_at is UNSET else instant_ms(self.run_at, "runAt"),
            labels=given_or(self.labels, None),
            idempotency_key=given_or(self.idempotency_key, ""),
        )

    def _spec(self, encoding: str) -> Spec:
        return Spec(
            schedule_to_start_ms=given_or(self.schedule_to_start_ms, 0),
            schedule_to_close_ms=given_or(self.schedule_to_close_ms, 0),
            start_to_close_ms=given_or(self.start_to_close_ms, 0),
            heartbeat_timeout_ms=given_or(self.heartbeat_timeout_ms, 0),
            heartbeat_interval_ms=given_or(self.heartbeat_interval_ms, 0),
            cancel_grace_ms=given_or(self.cancel_grace_period_ms, limits.CANCEL_GRACE_MS),
            delivery_timeout_ms=given_or(self.delivery_timeout_ms, limits.DELIVERY_TIMEOUT_MS),
            retry=RetryPolicy() if self.retry is UNSET else self.retry.policy(),
            encoding=encoding,
            resources=given_or(self.resources, {}),
        )


class EnqueueBody(TaskBody, frozen=True):
    """One task; isResend says that an earlier answer for this taskId may have been lost."""

    is_resend: bool = False


class BatchBody(Body, frozen=True):
    """Tasks to enqueue, all or none."""

    tasks: Annotated[list[TaskBody], Meta(min_length=1)]
    is_resend: bool = False


class CancelBody(DryRunBody, frozen=True):
    """Why the task is cancelled."""

    reason: str = ""


class AgainBody(Body, frozen=True):
    """The id of the new task; with it a request may be repeated."""

    new_task_id: str | UnsetType = UNSET


class ErrorBody(Body, frozen=True):
    """The details of a failure."""

    message: str
    category: ErrorCategory = ErrorCategory.USER_CODE
    type: str = ""
    stack_trace: str = ""
    details: Annotated[Raw, Meta(description="Any JSON")] | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET
    next_retry_delay_ms: Annotated[int, Meta(ge=0, le=limits.DURATION_MS_MAX)] | UnsetType = UNSET

    def info(self) -> ErrorInfo:
        """Return the error for the engine."""
        return ErrorInfo(
            category=self.category,
            message=self.message,
            type=self.type,
            stack_trace=self.stack_trace,
            details=None if self.details is UNSET else bytes(self.details),
            retryable=given_or(self.retryable, None),
            next_delay_ms=given_or(self.next_retry_delay_ms, None),
        )


class CompleteBody(Body, frozen=True):
    """The end of a task that completes asynchronously, for its live attempt or for a named one."""

    outcome: Literal["SUCCEEDED", "FAILED", "CANCELLED"]
    output: Annotated[Raw, Meta(description="Any JSON; stored byte for byte")] | UnsetType = UNSET
    output_base64: Base64 | UnsetType = msgspec.field(default=UNSET, name="outputBase64")
    output_encoding: (
        Annotated[str, Meta(description="Of outputBase64; by default that of the input")]
        | UnsetType
    ) = UNSET
    error: ErrorBody | UnsetType = UNSET
    attempt: Annotated[int, Meta(ge=1, le=limits.ATTEMPT_MAX)] | UnsetType = UNSET

    def finish(self, task_id: str) -> c.Finish:
        """Return the report of the end; only fields of the outcome are allowed."""
        output = payload(self.output, self.output_base64, "output")
        if output is not None and self.outcome != "SUCCEEDED":
            message = "output belongs to the outcome SUCCEEDED"
            raise InvalidArgument(message, field="output")
        if (self.error is not UNSET) != (self.outcome == "FAILED"):
            message = "error belongs to the outcome FAILED, which needs it"
            raise InvalidArgument(message, field="error")
        return c.Finish(
            task_id=task_id,
            attempt=given_or(self.attempt, 0),
            kind=c.FinishKind(self.outcome.lower()),
            output=output,
            output_encoding=self._encoding(),
            error=None if self.error is UNSET else self.error.info(),
        )

    def _encoding(self) -> str:
        if self.output_encoding is not UNSET and self.output_base64 is UNSET:
            message = "outputEncoding belongs to outputBase64; output is always JSON"
            raise InvalidArgument(message, field="outputEncoding")
        return JSON_ENCODING if self.output is not UNSET else given_or(self.output_encoding, "")


def payload(json: Raw | UnsetType, text: str | UnsetType, field: str) -> bytes | None:
    """Return a payload that was given as JSON or as base64, but not as both."""
    if json is not UNSET and text is not UNSET:
        message = f"{field} and {field}Base64 must not be given together"
        raise InvalidArgument(message, field=f"{field}Base64")
    if json is not UNSET:
        data = bytes(json)
    elif text is not UNSET:
        data = _from_base64(text, f"{field}Base64")
    else:
        return None
    return check.payload(data, field)


def encoded_payload(
    json: Raw | UnsetType, text: str | UnsetType, encoding: str | UnsetType, *, field: str
) -> tuple[bytes | None, str]:
    """Return a payload and its encoding; bytes need the name of theirs."""
    data = payload(json, text, field)
    if text is UNSET:
        if encoding is not UNSET:
            message = f"encoding belongs to {field}Base64; {field} is always JSON"
            raise InvalidArgument(message, field="encoding")
        return data, JSON_ENCODING
    if encoding is UNSET or not encoding:
        message = f"{field}Base64 needs encoding, the name by which its worker reads it"
        raise InvalidArgument(message, field="encoding")
    return data, encoding


def _from_base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        message = f"{field} must be base64 with padding"
        raise InvalidArgument(message, field=field) from error


def instant_ms(instant: datetime, field: str) -> int:
    """Return an instant in milliseconds since 1970."""
    since_ms = (instant - EPOCH) // timedelta(milliseconds=1)
    if not 0 < since_ms <= limits.INSTANT_MS_MAX:
        message = f"{field} must be between the years 1970 and 9999"
        raise InvalidArgument(message, field=field)
    return since_ms
