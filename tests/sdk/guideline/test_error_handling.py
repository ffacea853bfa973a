"""Error handling: what is tried again, what is final, and what the caller learns."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest

from tenure import ApplicationError, Client, RetryPolicy, TaskFailed, activity
from tenure.core.task.record import TaskState
from tenure.core.task.retry import ErrorCategory
from tenure.testing import TestEngine
from tests.polling import eventually
from tests.sdk.guideline.scene import outcomes, until_state, waits_s


@dataclass
class Shortage:
    """The fields that a caller decides by."""

    item: str
    missing: int


class OutOfStock(ApplicationError):
    """An error type of its own, with the fields as details."""

    def __init__(self, shortage: Shortage) -> None:
        super().__init__(f"{shortage.item} is out of stock", shortage, non_retryable=True)


class Partner:
    """An activity that raises what the test says, in its first attempt or in each."""

    def __init__(self, error: Exception, failures: int = 1) -> None:
        self._error = error
        self._failures = failures

    @activity(start_to_close="10s", retry=RetryPolicy(max_attempts=5))
    def call(self) -> int:
        if activity.info().failure_count < self._failures:
            raise self._error
        return activity.info().attempt


# -- Classification


async def test_a_return_is_a_success(engine: TestEngine, client: Client) -> None:
    partner = Partner(Exception(), failures=0)
    async with engine.worker([partner]):
        handle = await client.enqueue(partner.call)
        assert await handle.result() == 1
    assert await outcomes(handle) == ["succeeded"]


async def test_any_error_is_tried_again(engine: TestEngine, client: Client) -> None:
    partner = Partner(ZeroDivisionError("whatever"))
    async with engine.worker([partner]):
        assert await engine.advance_until(client.run(partner.call)) == 2


async def test_a_non_retryable_error_fails_at_once(engine: TestEngine, client: Client) -> None:
    partner = Partner(ApplicationError("no such account", non_retryable=True))
    async with engine.worker([partner]):
        with pytest.raises(
            TaskFailed, match="failed and is not retried: ApplicationError: no such account"
        ) as caught:
            await client.run(partner.call)
    assert (caught.value.reason, caught.value.attempt) == ("NON_RETRYABLE", 1)


@pytest.mark.parametrize(
    ("settings", "attempts"),
    [
        ({}, 2),
        ({"non_retryable": False}, 2),
        ({"non_retryable": True}, 1),
        ({"category": "INFRASTRUCTURE"}, 2),
        ({"category": "TIMEOUT"}, 2),
        ({"category": "DATA_QUALITY"}, 1),
        ({"category": "CONFIGURATION"}, 1),
        ({"category": "DATA_QUALITY", "non_retryable": False}, 2),
        ({"category": "INFRASTRUCTURE", "non_retryable": True}, 1),
    ],
)
async def test_an_application_error_says_itself_how_it_is_taken(
    engine: TestEngine, client: Client, settings: dict[str, Any], attempts: int
) -> None:
    partner = Partner(ApplicationError("no", **settings))
    async with engine.worker([partner]):
        handle = await client.enqueue(partner.call)
        if attempts == 1:
            with pytest.raises(TaskFailed):
                await handle.result()
        else:
            await engine.advance_until(handle.result())
        found = await handle.attempts()
    assert len(found) == attempts
    assert found[0].error is not None
    assert found[0].error.category == settings.get("category", ErrorCategory.USER_CODE)


# -- Scenarios


@pytest.mark.parametrize(
    "error",
    [
        ApplicationError("the postcode is missing", type="Invalid", category="DATA_QUALITY"),
        ApplicationError("404", type="NotFound", non_retryable=True),
        ApplicationError("403", type="PermissionDenied", category="CONFIGURATION"),
        ApplicationError("the limit is 500", type="LimitExceeded", non_retryable=True),
        ApplicationError("the checksum differs", type="Corrupt", category="DATA_QUALITY"),
    ],
    ids=["input", "not found", "permission", "business rule", "integrity"],
)
async def test_what_a_retry_will_not_help_is_tried_once(
    engine: TestEngine, client: Client, error: ApplicationError
) -> None:
    partner = Partner(error)
    async with engine.worker([partner]):
        handle = await client.enqueue(partner.call)
        with pytest.raises(TaskFailed) as caught:
            await handle.result()
    assert await outcomes(handle) == ["failed"]
    assert caught.value.error is not None
    assert caught.value.error.type == error.type


async def test_input_that_does_not_fit_the_parameters_is_final_before_any_code_runs(
    engine: TestEngine, client: Client
) -> None:
    calls: list[int] = []

    @activity(start_to_close="10s")
    def resize(width: int) -> None:
        calls.append(width)

    async with engine.worker([resize]):
        handle = await client.enqueue_named("resize", {"width": "wide"}, start_to_close="10s")
        with pytest.raises(TaskFailed, match="parameter width must be int, not str") as caught:
            await handle.result()
    assert calls == []
    assert caught.value.error is not None
    assert caught.value.error.category is ErrorCategory.DATA_QUALITY


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("no answer within 10 s"),
        ApplicationError("429", type="RateLimited", next_retry_delay="45s"),
        ApplicationError("503", type="Unavailable", category="INFRASTRUCTURE"),
        ConnectionResetError("by peer"),
        BlockingIOError("the row is locked"),
    ],
    ids=["timeout", "rate limit", "unavailable", "reset", "contention"],
)
async def test_what_may_pass_is_tried_again(
    engine: TestEngine, client: Client, error: Exception
) -> None:
    partner = Partner(error)
    async with engine.worker([partner]):
        handle = await client.enqueue(partner.call)
        assert await engine.advance_until(handle.result()) == 2
        assert await waits_s(handle) == [45 if "429" in str(error) else 1]


# -- Details


async def test_details_of_an_error_reach_the_caller_typed_so_that_it_can_decide(
    engine: TestEngine, client: Client
) -> None:
    partner = Partner(OutOfStock(Shortage("lamp", 3)))
    async with engine.worker([partner]):
        with pytest.raises(TaskFailed, match="lamp is out of stock") as caught:
            await client.run(partner.call)
    error = caught.value.error
    assert error is not None
    assert error.type == "OutOfStock"
    (shortage,) = error.details(Shortage)
    assert shortage == Shortage("lamp", 3)


async def test_details_cannot_be_read_as_another_type(engine: TestEngine, client: Client) -> None:
    partner = Partner(ApplicationError("no", "text", non_retryable=True))
    async with engine.worker([partner]):
        with pytest.raises(TaskFailed) as caught:
            await client.run(partner.call)
    assert caught.value.error is not None
    with pytest.raises(ValueError, match="Shortage"):
        caught.value.error.details(Shortage)


# -- Guidelines


async def test_a_list_of_types_classifies_errors_of_other_libraries_explicitly(
    engine: TestEngine, client: Client
) -> None:
    policy = RetryPolicy(non_retryable_error_types=(LookupError, "HTTPStatusError"))

    @activity(start_to_close="10s", retry=policy)
    def find() -> None:
        raise LookupError("no such page")

    async with engine.worker([find]):
        with pytest.raises(TaskFailed) as caught:
            await client.run(find)
    assert (caught.value.reason, caught.value.attempt) == ("NON_RETRYABLE", 1)


async def test_the_caller_sees_type_message_cause_and_the_trace_in_the_worker(
    engine: TestEngine, client: Client
) -> None:
    def hand_over() -> None:
        raise ConnectionResetError("by peer")

    @activity(start_to_close="10s", retry=RetryPolicy(max_attempts=1))
    def deliver() -> None:
        try:
            hand_over()
        except ConnectionResetError as error:
            raise RuntimeError("parcel 17 was not handed over") from error

    async with engine.worker([deliver]):
        with pytest.raises(TaskFailed, match="parcel 17 was not handed over") as caught:
            await client.run(deliver)
    error = caught.value.error
    assert error is not None
    assert error.type == "RuntimeError"
    assert "ConnectionResetError: by peer" in error.stack_trace
    assert "direct cause" in error.stack_trace
    assert __file__ in error.stack_trace
    assert "tenure/sdk" not in error.stack_trace
    assert caught.value.task_id


async def test_retries_spare_what_is_downstream(engine: TestEngine, client: Client) -> None:
    """The service's own word on when to come back wins over the policy, once."""

    @activity(start_to_close="10s")
    def fetch() -> None:
        failures = activity.info().failure_count
        if failures == 0:
            raise ApplicationError("busy", next_retry_delay="5m")
        if failures < 3:
            raise ConnectionError("away")

    async with engine.worker([fetch]):
        handle = await client.enqueue(fetch)
        await engine.advance_until(handle.result())
        assert await waits_s(handle) == [300, 2, 4]


@pytest.mark.parametrize(
    ("delay", "wait_s"), [(0, 0), (-2.5, 0), (timedelta(0), 0), (1e-9, 0.001), (0.0004, 0.001)]
)
async def test_a_delay_that_is_over_already_means_at_once(
    engine: TestEngine, client: Client, delay: float | timedelta, wait_s: float
) -> None:
    """``retry_at - now`` is what people write, and its end may have passed, or be very near."""
    partner = Partner(ApplicationError("429", type="RateLimited", next_retry_delay=delay))
    async with engine.worker([partner]):
        handle = await client.enqueue(partner.call)
        assert await engine.advance_until(handle.result()) == 2
        assert await waits_s(handle) == [wait_s]


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_a_failing_activity_shows_the_traceback_of_the_users_frames_in_the_log(
    engine: TestEngine, client: Client, caplog: pytest.LogCaptureFixture, mode: Literal["session"]
) -> None:
    """A retry is a warning; the last failure is an error."""
    caplog.set_level(logging.INFO, logger="tenure.worker")

    @activity(start_to_close="10s", retry=RetryPolicy(max_attempts=2))
    def charge() -> None:
        raise ValueError("no such card")

    async with engine.worker([charge], mode=mode):
        handle = await client.enqueue(charge)
        with pytest.raises(TaskFailed):
            await engine.advance_until(handle.result())
        await eventually(lambda: len(failures_of(caplog)) == 2)
    first, last = failures_of(caplog)
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
    head, _, trace = first.getMessage().partition("\n")
    what = f"Task {handle.task_id} (charge) failed in attempt 1 and is retried"
    assert head == f"{what}: ValueError: no such card"
    assert trace.splitlines()[0] == "Traceback (most recent call last):"
    assert 'raise ValueError("no such card")' in trace
    assert "tenure/sdk" not in trace
    assert last.getMessage().startswith(
        f"Task {handle.task_id} (charge) failed in attempt 2, its last: ValueError: no such card"
    )


async def test_a_failure_without_code_of_the_user_is_logged_without_a_traceback(
    engine: TestEngine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    @activity(start_to_close="10s")
    def double(number: int) -> int:
        return number * 2

    async with engine.worker([double]):
        handle = await client.enqueue_named("double", {"number": "two"}, start_to_close="10s")
        with pytest.raises(TaskFailed):
            await handle.result()
        await eventually(lambda: failures_of(caplog))
    (failure,) = failures_of(caplog)
    assert failure.levelname == "ERROR"
    assert "failed in attempt 1, its last: BadInput: " in failure.getMessage()
    assert "\n" not in failure.getMessage()


async def test_a_failure_while_a_task_is_cancelled_is_no_error(
    engine: TestEngine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    @activity(start_to_close="1h", heartbeat_timeout="10m")
    async def sail() -> None:
        activity.heartbeat()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise RuntimeError("no port") from None

    async with engine.worker([sail]):
        handle = await client.enqueue(sail)
        await until_state(handle, TaskState.RUNNING)
        await handle.cancel()
        with pytest.raises(TaskFailed):
            await handle.result()
        await eventually(lambda: failures_of(caplog))
    (failure,) = failures_of(caplog)
    assert failure.levelname == "WARNING"
    assert "failed in attempt 1 and is cancelled: RuntimeError: no port" in failure.getMessage()


def failures_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if " failed in attempt " in each.getMessage()]


async def test_log_lines_of_an_activity_carry_its_context(
    engine: TestEngine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("shop")

    @activity(start_to_close="10s")
    def pack() -> None:
        info = activity.info()
        log.error("box is missing: task=%s attempt=%d", info.task_id, info.attempt)

    async with engine.worker([pack]):
        handle = await client.enqueue(pack)
        await handle.result()
    assert f"box is missing: task={handle.task_id} attempt=1" in caplog.text
