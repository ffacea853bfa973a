"""Timeouts, retries and the other options of tasks: as users give them, checked, on the wire."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypedDict

import msgspec
from msgspec.structs import replace

from tenure.core import check
from tenure.core.limits import PRIORITY_DEFAULT, TEXT_BYTES_MAX
from tenure.core.task.retry import RetryPolicy as CoreRetryPolicy
from tenure.errors import InvalidArgument
from tenure.sdk.duration import Duration, delay_ms, duration_ms
from tenure.v1 import task_pb2

Where = Literal["loop", "thread", "process"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How failures are retried; ``max_attempts`` 0 is without limit.

    The default of ``maximum_interval`` is 100 times the initial interval. Error types are exception
    classes, or names as in ``ApplicationError.type``.
    """

    initial_interval: Duration = "1s"
    backoff_coefficient: float = 2.0
    maximum_interval: Duration | None = None
    max_attempts: int = 0
    non_retryable_error_types: tuple[str | type[BaseException], ...] = ()


class CallSettings(TypedDict, total=False):
    """Options for all tasks of an activity, or for one task."""

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
    """Options for one task."""

    delay: Duration
    run_at: datetime
    idempotency_key: str


class ActivitySettings(CallSettings, total=False):
    """Options of ``@activity``."""

    name: str
    aliases: Iterable[str]
    executor: Where
    exclusive: bool
    completes_later: bool


_TIMEOUTS: Final = frozenset(
    {
        "start_to_close",
        "schedule_to_close",
        "schedule_to_start",
        "heartbeat_timeout",
        "cancel_grace",
    }
)
# The options that are not durations: the type of each, and how a message describes it.
_TYPES: Final[dict[str, tuple[type, str]]] = {
    "queue": (str, "a text"),
    "retry": (RetryPolicy, "a RetryPolicy, such as RetryPolicy(max_attempts=3)"),
    "priority": (int, "a number from 0 to 9"),
    "labels": (Mapping, 'a mapping such as {"team": "shop"}'),
    "run_at": (datetime, "a datetime with a time zone, such as datetime(2030, 1, 31, tzinfo=UTC)"),
    "idempotency_key": (str, "a text"),
}


class SharedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The checked settings that activities and workflows have in common."""

    queue: str = "default"
    priority: int = PRIORITY_DEFAULT
    labels: dict[str, str] = {}
    delay_ms: int = 0
    run_at_ms: int = 0
    idempotency_key: str = ""

    def check_shared(self) -> None:
        """Raise ``ValueError`` for bad values of these."""
        try:
            check.name(self.queue, "queue")
            check.priority(self.priority)
            check.labels(self.labels)
            check.text(self.idempotency_key, "idempotency_key", bytes_max=TEXT_BYTES_MAX)
        except InvalidArgument as error:
            raise ValueError(error.message) from None


class Options(SharedOptions, frozen=True, kw_only=True):
    """Checked settings of an activity. A duration of 0 is not set."""

    start_to_close_ms: int = 0
    schedule_to_close_ms: int = 0
    schedule_to_start_ms: int = 0
    heartbeat_timeout_ms: int = 0
    cancel_grace_ms: int = 0
    retry: RetryPolicy = RetryPolicy()

    def changed(self, settings: Mapping[str, Any]) -> Options:
        """Return a copy with other settings; raise ``ValueError`` for bad ones.

        The last one of ``delay`` and ``run_at`` counts.
        """
        values = to_fields(settings, _TIMEOUTS)
        try:
            changed = replace(self, **values)
        except TypeError:
            unknown = min(set(values) - set(Options.__struct_fields__))
            known = [*OneCallSettings.__annotations__, *ActivitySettings.__annotations__]
            raise TypeError(no_option(unknown, known)) from None
        changed.check()
        return changed

    def check(self) -> None:
        """Raise ``ValueError`` for timeouts that contradict each other, and other bad values."""
        longest_ms = self.start_to_close_ms or self.schedule_to_close_ms
        if not longest_ms:
            raise ValueError(
                "a timeout is missing; set start_to_close (how long one attempt may take) or "
                "schedule_to_close (how long all attempts together may take)"
            )
        if self.schedule_to_close_ms:
            if self.start_to_close_ms > self.schedule_to_close_ms:
                raise ValueError("start_to_close must not be longer than schedule_to_close")
            if self.schedule_to_start_ms > self.schedule_to_close_ms:
                raise ValueError("schedule_to_start must not be longer than schedule_to_close")
        if self.heartbeat_timeout_ms > longest_ms:
            name = "start_to_close" if self.start_to_close_ms else "schedule_to_close"
            raise ValueError(f"heartbeat_timeout must not be longer than {name}")
        retry_to_wire(self.retry)
        self.check_shared()

    def to_wire(self, encoding: str) -> task_pb2.TaskOptions:
        """Return what all tasks with these options share on the wire."""
        return task_pb2.TaskOptions(
            kind=task_pb2.TASK_KIND_ACTIVITY,
            schedule_to_start_ms=self.schedule_to_start_ms,
            schedule_to_close_ms=self.schedule_to_close_ms,
            start_to_close_ms=self.start_to_close_ms,
            heartbeat_timeout_ms=self.heartbeat_timeout_ms,
            cancel_grace_period_ms=self.cancel_grace_ms,
            retry=retry_to_wire(self.retry),
            encoding=encoding,
        )


def to_fields(settings: Mapping[str, Any], timeouts: frozenset[str]) -> dict[str, Any]:
    """Return settings as fields of options, durations and instants in ms; check their types."""
    values = dict(settings)
    for name in _TYPES.keys() & values.keys():
        _check_type(values[name], name, *_TYPES[name])
    if "delay" in values and "run_at" in values:
        raise ValueError("give either delay or run_at, not both")
    for name in timeouts & values.keys():
        values[f"{name}_ms"] = duration_ms(values.pop(name), name)
    if "delay" in values:
        values |= {"delay_ms": delay_ms(values.pop("delay"), "delay"), "run_at_ms": 0}
    if "run_at" in values:
        values |= {"run_at_ms": _instant(values.pop("run_at")), "delay_ms": 0}
    if "labels" in values:
        values["labels"] = dict(values["labels"])
    return values


def retry_to_wire(policy: RetryPolicy) -> task_pb2.RetryPolicy:
    """Return the message of the protocol; raise ``ValueError`` for contradictions."""
    _check_type(policy.max_attempts, "max_attempts", int, "a number")
    _check_type(policy.backoff_coefficient, "backoff_coefficient", (int, float), "a number")
    types = policy.non_retryable_error_types
    name = "non_retryable_error_types"
    _check_type(types, name, (tuple, list), "a tuple, such as (KeyError,)")
    for each in types:
        if not isinstance(each, str) and not _is_exception(each):
            given = type(each).__name__
            raise TypeError(f"{name} must hold names or exception classes, not {given}")
    initial_ms = duration_ms(policy.initial_interval, "initial_interval")
    longest = policy.maximum_interval
    maximum_ms = 0 if longest is None else duration_ms(longest, "maximum_interval")
    if 0 < maximum_ms < initial_ms:
        raise ValueError("maximum_interval must not be below initial_interval")
    if not policy.backoff_coefficient >= 1:
        raise ValueError("backoff_coefficient must be at least 1")
    if policy.max_attempts < 0:
        raise ValueError("max_attempts must be 0 (without limit) or more")
    return task_pb2.RetryPolicy(
        initial_interval_ms=initial_ms,
        backoff_coefficient=policy.backoff_coefficient,
        maximum_interval_ms=maximum_ms,
        maximum_attempts=policy.max_attempts,
        non_retryable_error_types=[
            each if isinstance(each, str) else each.__name__ for each in types
        ],
    )


def retry_in_core(policy: RetryPolicy) -> CoreRetryPolicy:
    """Return a policy as the rules for the next attempt take it."""
    wire = retry_to_wire(policy)
    return CoreRetryPolicy(
        wire.initial_interval_ms,
        wire.backoff_coefficient,
        wire.maximum_interval_ms,
        wire.maximum_attempts,
        tuple(wire.non_retryable_error_types),
    )


def _instant(value: datetime) -> int:
    if value.tzinfo is None:
        raise ValueError("run_at needs a time zone, such as datetime(2030, 1, 31, tzinfo=UTC)")
    # An instant in the past means now.
    return max(round(value.timestamp() * 1_000), 0)


def no_option(name: str, known: Iterable[str]) -> str:
    """Return what to say about an option that does not exist."""
    similar = difflib.get_close_matches(name, list(known), n=1)
    return f"there is no option {name}{f'; did you mean {similar[0]}?' if similar else ''}"


def _check_type(value: object, name: str, kind: type | tuple[type, ...], text: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be {text}, not {type(value).__name__}")


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
