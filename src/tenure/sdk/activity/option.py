"""Timeouts, retries and the other options of tasks: as users give them, checked, on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypedDict

import msgspec
from msgspec.structs import replace

from tenure.core import check
from tenure.core.limits import PRIORITY_DEFAULT
from tenure.errors import InvalidArgument
from tenure.sdk.duration import Duration, duration_ms
from tenure.v1 import task_pb2

Where = Literal["loop", "thread", "process"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How failures are retried; ``max_attempts`` 0 is without limit.

    ``maximum_interval`` is 100 initial intervals unless it is given. Types of errors are named as
    in ``ApplicationError.type``, or given as exception classes.
    """

    initial_interval: Duration = "1s"
    backoff_coefficient: float = 2.0
    maximum_interval: Duration | None = None
    max_attempts: int = 0
    non_retryable_error_types: tuple[str | type[BaseException], ...] = ()

    def to_wire(self) -> task_pb2.RetryPolicy:
        """Return the message of the protocol; raise ``ValueError`` for what contradicts itself."""
        initial_ms = duration_ms(self.initial_interval, "initial_interval")
        longest = self.maximum_interval
        maximum_ms = 0 if longest is None else duration_ms(longest, "maximum_interval")
        if 0 < maximum_ms < initial_ms:
            raise ValueError("maximum_interval must not be below initial_interval")
        if not self.backoff_coefficient >= 1:
            raise ValueError("backoff_coefficient must be at least 1")
        if self.max_attempts < 0:
            raise ValueError("max_attempts must be 0 (without limit) or more")
        return task_pb2.RetryPolicy(
            initial_interval_ms=initial_ms,
            backoff_coefficient=self.backoff_coefficient,
            maximum_interval_ms=maximum_ms,
            maximum_attempts=self.max_attempts,
            non_retryable_error_types=[
                each if isinstance(each, str) else each.__name__
                for each in self.non_retryable_error_types
            ],
        )


class CallSettings(TypedDict, total=False):
    """What can be set for all tasks of an activity, and for one of them."""

    queue: str
    start_to_close: Duration
    schedule_to_close: Duration
    schedule_to_start: Duration
    heartbeat_timeout: Duration
    cancel_grace: Duration
    retry: RetryPolicy
    priority: int
    labels: Mapping[str, str]


class OneCallSettings(CallSettings, total=False):
    """What can be set for one task."""

    delay: Duration
    run_at: datetime
    idempotency_key: str


class ActivitySettings(CallSettings, total=False):
    """What can be set where an activity is declared."""

    name: str
    aliases: Iterable[str]
    executor: Where
    exclusive: bool
    completes_later: bool


_TIMEOUTS: Final = (
    "start_to_close",
    "schedule_to_close",
    "schedule_to_start",
    "heartbeat_timeout",
    "cancel_grace",
)


class Options(msgspec.Struct, frozen=True):
    """Settings after they were checked. A duration of 0 is not set."""

    queue: str = "default"
    start_to_close_ms: int = 0
    schedule_to_close_ms: int = 0
    schedule_to_start_ms: int = 0
    heartbeat_timeout_ms: int = 0
    cancel_grace_ms: int = 0
    retry: RetryPolicy = RetryPolicy()
    priority: int = PRIORITY_DEFAULT
    labels: dict[str, str] = {}
    delay_ms: int = 0
    run_at_ms: int = 0
    idempotency_key: str = ""

    def changed(self, settings: Mapping[str, Any]) -> Options:
        """Return these with other settings; raise ``ValueError`` for what cannot be."""
        values = dict(settings)
        for name in _TIMEOUTS:
            if name in values:
                values[f"{name}_ms"] = duration_ms(values.pop(name), name)
        if "delay" in values:
            values["delay_ms"] = duration_ms(values.pop("delay"), "delay")
        if "run_at" in values:
            values["run_at_ms"] = _instant(values.pop("run_at"))
        if "labels" in values:
            values["labels"] = dict(values["labels"])
        try:
            changed = replace(self, **values)
        except TypeError:
            unknown = ", ".join(sorted(set(values) - set(Options.__struct_fields__)))
            raise TypeError(f"unknown options: {unknown}") from None
        changed.check()
        return changed

    def check(self) -> None:
        """Raise ``ValueError`` for timeouts that contradict each other, and other bad values."""
        longest_ms = self.start_to_close_ms or self.schedule_to_close_ms
        if not longest_ms:
            raise ValueError(
                "an activity needs start_to_close (how long one attempt may take) or "
                "schedule_to_close (how long all attempts together may take)"
            )
        if self.schedule_to_close_ms:
            if self.start_to_close_ms > self.schedule_to_close_ms:
                raise ValueError("start_to_close must not be longer than schedule_to_close")
            if self.schedule_to_start_ms > self.schedule_to_close_ms:
                raise ValueError("schedule_to_start must not be longer than schedule_to_close")
        if self.heartbeat_timeout_ms > longest_ms:
            raise ValueError("heartbeat_timeout must not be longer than the attempt may take")
        if self.delay_ms and self.run_at_ms:
            raise ValueError("give either delay or run_at")
        self.retry.to_wire()
        try:
            check.name(self.queue, "queue")
            check.priority(self.priority)
            check.labels(self.labels)
        except InvalidArgument as error:
            raise ValueError(error.message) from None

    def to_wire(self, encoding: str) -> task_pb2.TaskOptions:
        """Return what all tasks with these options share on the wire."""
        return task_pb2.TaskOptions(
            kind=task_pb2.TASK_KIND_ACTIVITY,
            schedule_to_start_ms=self.schedule_to_start_ms,
            schedule_to_close_ms=self.schedule_to_close_ms,
            start_to_close_ms=self.start_to_close_ms,
            heartbeat_timeout_ms=self.heartbeat_timeout_ms,
            cancel_grace_period_ms=self.cancel_grace_ms,
            retry=self.retry.to_wire(),
            encoding=encoding,
        )


def _instant(value: datetime) -> int:
    if value.tzinfo is None:
        raise ValueError("run_at needs a time zone: datetime.now(UTC) + …")
    return round(value.timestamp() * 1_000)
