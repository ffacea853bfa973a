"""Retries: who gets another attempt, and after which wait."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import limits
from tenure.core.task.retry import (
    ErrorCategory,
    ErrorInfo,
    RetryPolicy,
    check_retry,
    is_retryable,
    next_delay_ms,
)
from tenure.errors import InvalidArgument

MIDDLE = 0.5  # The jitter that leaves the interval as it is.
FAULT = ErrorInfo(ErrorCategory.USER_CODE, "boom", type="ValueError")
TYPES_FIELD = "retry.nonRetryableErrorTypes"

policies = st.builds(
    RetryPolicy,
    initial_interval_ms=st.integers(1, limits.DURATION_MS_MAX),
    backoff_coefficient=st.floats(1.0, limits.BACKOFF_COEFFICIENT_MAX),
    maximum_interval_ms=st.just(0),
)
jitters = st.floats(0, 1, exclude_max=True)


def delay_ms(policy: RetryPolicy, failure_count: int, jitter: float = MIDDLE) -> int | None:
    return next_delay_ms(policy, failure_count=failure_count, error=None, jitter=jitter)


def test_the_wait_doubles_up_to_a_hundred_initial_intervals() -> None:
    waits = [delay_ms(RetryPolicy(), count) for count in range(1, 10)]
    assert waits == [1000, 2000, 4000, 8000, 16000, 32000, 64000, 100_000, 100_000]


def test_a_given_maximum_interval_ends_the_growth() -> None:
    policy = RetryPolicy(initial_interval_ms=100, maximum_interval_ms=250)
    assert [delay_ms(policy, count) for count in (1, 2, 3, 4)] == [100, 200, 250, 250]


def test_a_coefficient_of_one_waits_the_same_each_time() -> None:
    policy = RetryPolicy(initial_interval_ms=70, backoff_coefficient=1.0)
    assert [delay_ms(policy, count) for count in (1, 2, 10**6)] == [70, 70, 70]


def test_a_whole_coefficient_grows_like_a_float() -> None:
    policy = RetryPolicy(backoff_coefficient=3)
    assert [delay_ms(policy, count) for count in (1, 2, 3, 10**6)] == [1000, 3000, 9000, 100_000]


def test_jitter_spreads_the_wait_from_80_to_120_percent() -> None:
    assert delay_ms(RetryPolicy(), 1, jitter=0.0) == 800
    assert delay_ms(RetryPolicy(), 1, jitter=0.999999) == 1200


def test_jitter_never_exceeds_the_maximum_interval() -> None:
    assert delay_ms(RetryPolicy(maximum_interval_ms=1000), 5, jitter=0.9) == 1000
    assert delay_ms(RetryPolicy(maximum_interval_ms=1000), 5, jitter=0.0) == 800


@given(policies, st.integers(1, 10**6), jitters)
def test_every_good_policy_gives_a_wait_in_range(
    policy: RetryPolicy, failure_count: int, jitter: float
) -> None:
    assert check_retry(policy) is policy
    wait_ms = delay_ms(policy, failure_count, jitter)
    assert wait_ms is not None
    assert 1 <= wait_ms <= min(100 * policy.initial_interval_ms, limits.DURATION_MS_MAX)


@given(policies, st.integers(1, 2000), jitters)
def test_the_wait_never_shrinks_with_more_failures(
    policy: RetryPolicy, failure_count: int, jitter: float
) -> None:
    earlier, later = (delay_ms(policy, failure_count + step, jitter) for step in (0, 1))
    assert earlier is not None
    assert later is not None
    assert earlier <= later


def test_the_last_allowed_attempt_is_followed_by_none() -> None:
    policy = RetryPolicy(maximum_attempts=3)
    assert [delay_ms(policy, count) for count in (2, 3, 4)] == [2000, None, None]
    assert delay_ms(RetryPolicy(maximum_attempts=1), 1) is None


def test_an_error_that_is_not_retryable_is_followed_by_no_attempt() -> None:
    error = ErrorInfo(ErrorCategory.DATA_QUALITY, "bad row", next_delay_ms=5)
    assert next_delay_ms(RetryPolicy(), failure_count=1, error=error, jitter=MIDDLE) is None


def test_a_retryable_error_waits_as_the_policy_says() -> None:
    assert next_delay_ms(RetryPolicy(), failure_count=1, error=FAULT, jitter=MIDDLE) == 1000


@pytest.mark.parametrize("own_ms", [0, 7, 10**9])
def test_the_errors_own_delay_is_used_exactly(own_ms: int) -> None:
    error = msgspec.structs.replace(FAULT, next_delay_ms=own_ms)
    assert next_delay_ms(RetryPolicy(), failure_count=9, error=error, jitter=0.9) == own_ms


def test_the_errors_own_delay_buys_no_further_attempt() -> None:
    error = msgspec.structs.replace(FAULT, next_delay_ms=7)
    policy = RetryPolicy(maximum_attempts=2)
    assert next_delay_ms(policy, failure_count=2, error=error, jitter=MIDDLE) is None


@pytest.mark.parametrize("category", ErrorCategory)
def test_the_category_decides_when_nothing_else_does(category: ErrorCategory) -> None:
    retried = {ErrorCategory.USER_CODE, ErrorCategory.INFRASTRUCTURE, ErrorCategory.TIMEOUT}
    assert is_retryable(ErrorInfo(category, "x"), RetryPolicy()) is (category in retried)


def test_a_non_retryable_type_wins_over_the_category() -> None:
    policy = RetryPolicy(non_retryable_error_types=("KeyError", "ValueError"))
    assert not is_retryable(FAULT, policy)
    assert is_retryable(msgspec.structs.replace(FAULT, type="OSError"), policy)


@pytest.mark.parametrize("category", ErrorCategory)
@pytest.mark.parametrize("explicit", [True, False])
def test_an_explicit_wish_wins_over_type_and_category(
    category: ErrorCategory, explicit: bool
) -> None:
    policy = RetryPolicy(non_retryable_error_types=("ValueError",))
    error = ErrorInfo(category, "x", type="ValueError", retryable=explicit)
    assert is_retryable(error, policy) is explicit


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(),
        RetryPolicy(initial_interval_ms=1, backoff_coefficient=1.0, maximum_interval_ms=1),
        RetryPolicy(maximum_attempts=limits.ATTEMPT_MAX),
        RetryPolicy(non_retryable_error_types=("a.b.<locals>.Fehler",) * 100),
    ],
)
def test_a_good_policy_passes(policy: RetryPolicy) -> None:
    assert check_retry(policy) is policy


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (RetryPolicy(initial_interval_ms=0), "retry.initialIntervalMs"),
        (RetryPolicy(initial_interval_ms=2**63), "retry.initialIntervalMs"),
        (RetryPolicy(backoff_coefficient=0.99), "retry.backoffCoefficient"),
        (RetryPolicy(backoff_coefficient=float("nan")), "retry.backoffCoefficient"),
        (RetryPolicy(backoff_coefficient=float("inf")), "retry.backoffCoefficient"),
        (RetryPolicy(maximum_interval_ms=-1), "retry.maximumIntervalMs"),
        (RetryPolicy(maximum_interval_ms=999), "retry.maximumIntervalMs"),
        (RetryPolicy(maximum_attempts=-1), "retry.maximumAttempts"),
        (RetryPolicy(maximum_attempts=2**31), "retry.maximumAttempts"),
        (msgspec.structs.replace(RetryPolicy(), non_retryable_error_types="KeyError"), TYPES_FIELD),
        (RetryPolicy(non_retryable_error_types=("",)), TYPES_FIELD),
        (RetryPolicy(non_retryable_error_types=("a\0",)), TYPES_FIELD),
        (RetryPolicy(non_retryable_error_types=("x" * 256,)), TYPES_FIELD),
        (RetryPolicy(non_retryable_error_types=("x",) * 101), TYPES_FIELD),
    ],
)
def test_a_bad_policy_is_refused_with_the_name_of_its_field(
    policy: RetryPolicy, field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_retry(policy)
    assert caught.value.fields == {"field": field}


def test_policy_and_error_survive_storage() -> None:
    policy = RetryPolicy(maximum_attempts=3, non_retryable_error_types=("KeyError",))
    error = msgspec.structs.replace(FAULT, details=b"\x00", retryable=True)
    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
    assert decode(encode(policy), type=RetryPolicy) == policy
    assert decode(encode(error), type=ErrorInfo) == error


@pytest.mark.parametrize(("failure_count", "jitter"), [(0, 0.5), (1, 1.0), (1, -0.1)])
def test_impossible_arguments_are_our_mistake(failure_count: int, jitter: float) -> None:
    with pytest.raises(AssertionError):
        delay_ms(RetryPolicy(), failure_count, jitter)
