"""When a failed attempt is followed by another, and how long the next one waits."""

import enum

import msgspec

from tenure.core import check, limits
from tenure.errors import InvalidArgument


class RetryPolicy(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How failures of a task are retried. Stored with the task by position: append, never insert.

    A `maximum_interval_ms` of 0 is 100 initial intervals; `maximum_attempts` 0 means no limit.
    """

    initial_interval_ms: int = 1_000
    backoff_coefficient: float = 2.0
    maximum_interval_ms: int = 0
    maximum_attempts: int = 0
    non_retryable_error_types: tuple[str, ...] = ()


class ErrorCategory(enum.StrEnum):
    """The cause of a failure."""

    USER_CODE = "USER_CODE"
    DATA_QUALITY = "DATA_QUALITY"
    INFRASTRUCTURE = "INFRASTRUCTURE"
    CONFIGURATION = "CONFIGURATION"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"


# Another attempt helps against chance, not against bad data, a wrong setting or a cancel.
_IS_RETRIED: dict[ErrorCategory, bool] = {
    ErrorCategory.USER_CODE: True,
    ErrorCategory.DATA_QUALITY: False,
    ErrorCategory.INFRASTRUCTURE: True,
    ErrorCategory.CONFIGURATION: False,
    ErrorCategory.TIMEOUT: True,
    ErrorCategory.CANCELLED: False,
}


class ErrorInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The known details of a failure. Stored by position: append, never insert.

    `retryable` and `next_delay_ms` come with the error and override category and policy.
    """

    category: ErrorCategory
    message: str
    type: str = ""
    stack_trace: str = ""
    details: bytes | None = None
    retryable: bool | None = None
    next_delay_ms: int | None = None


def check_retry(policy: RetryPolicy, field: str = "retry") -> RetryPolicy:
    """Check a policy from outside and return it."""
    initial_ms = check.duration_ms(policy.initial_interval_ms, f"{field}.initialIntervalMs")
    check.number(
        policy.backoff_coefficient,
        f"{field}.backoffCoefficient",
        1.0,
        limits.BACKOFF_COEFFICIENT_MAX,
    )
    # A maximum below the first interval would be a contradiction.
    if policy.maximum_interval_ms != 0:
        check.duration_ms(
            policy.maximum_interval_ms, f"{field}.maximumIntervalMs", minimum=initial_ms
        )
    check.integer(policy.maximum_attempts, f"{field}.maximumAttempts", 0, limits.ATTEMPT_MAX)
    _check_error_types(policy.non_retryable_error_types, f"{field}.nonRetryableErrorTypes")
    return policy


def _check_error_types(names: object, field: str) -> None:
    # A bare string would be read as a list of letters; an empty name matches errors without a type.
    count_max = limits.NON_RETRYABLE_TYPES_MAX
    if not isinstance(names, tuple) or len(names) > count_max or "" in names:
        message = f"{field} must have at most {count_max} names, and none may be empty"
        raise InvalidArgument(message, field=field)
    for name in names:
        check.text(name, field, bytes_max=limits.NAME_LENGTH_MAX)


def is_retryable(error: ErrorInfo, policy: RetryPolicy) -> bool:
    """Return whether this error may be followed by another attempt, whatever their number."""
    if error.retryable is not None:
        return error.retryable
    if error.type in policy.non_retryable_error_types:
        return False
    return _IS_RETRIED[error.category]


def next_delay_ms(
    policy: RetryPolicy, *, failure_count: int, error: ErrorInfo | None, jitter: float
) -> int | None:
    """Return the wait before the next attempt, or None if there is none.

    `failure_count` is the number of failures that counted, including this one. The caller draws
    `jitter` in [0, 1); it spreads the wait from 80 % to 120 %, so that tasks which failed
    together do not run again together.
    """
    assert failure_count >= 1
    assert 0 <= jitter < 1
    if error is not None and not is_retryable(error, policy):
        return None
    if 0 < policy.maximum_attempts <= failure_count:
        return None
    if error is not None and error.next_delay_ms is not None:
        return error.next_delay_ms
    maximum_ms = _maximum_interval_ms(policy)
    spread_ms = _interval_ms(policy, failure_count, maximum_ms) * (0.8 + 0.4 * jitter)
    return min(round(spread_ms), maximum_ms)


def _maximum_interval_ms(policy: RetryPolicy) -> int:
    unset_ms = limits.RETRY_INTERVALS_MAX * policy.initial_interval_ms
    return min(policy.maximum_interval_ms or unset_ms, limits.DURATION_MS_MAX)


def _interval_ms(policy: RetryPolicy, failure_count: int, maximum_ms: int) -> float:
    try:
        growth = float(policy.backoff_coefficient) ** (failure_count - 1)
    except OverflowError:
        # A value beyond a float is far beyond every maximum.
        return maximum_ms
    return min(policy.initial_interval_ms * growth, maximum_ms)
