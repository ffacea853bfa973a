"""Activity configuration: four timeouts, and how retries are tuned."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tenure import (
    ApplicationError,
    Client,
    PayloadError,
    RetryPolicy,
    TaskFailed,
    TaskTimedOut,
    activity,
)
from tenure.core.task.record import TaskState
from tenure.sdk.client import TaskProgress
from tenure.testing import TestEngine
from tests.sdk.guideline.scene import (
    hang,
    lengths_s,
    outcomes,
    until_progress,
    until_state,
    waits_s,
)

ONCE: Final = RetryPolicy(max_attempts=1)


class OrderInvalid(Exception):
    pass


# -- Timeout types


def test_an_activity_without_a_timeout_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ValueError, match="greet: a timeout is missing; set start_to_close"):

        @activity()
        def greet() -> None: ...


def test_the_bare_decorator_says_which_timeout_to_write() -> None:
    with pytest.raises(TypeError, match="start_to_close"):

        @activity
        def greet() -> None: ...


async def test_start_to_close_bounds_a_single_attempt_and_the_next_one_has_all_of_it_again(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="30s", retry=RetryPolicy(max_attempts=2))
    async def call_partner() -> None:
        activity.heartbeat()
        await hang()

    async with engine.worker([call_partner]):
        handle = await client.enqueue(call_partner)
        with pytest.raises(TaskTimedOut, match="start_to_close") as caught:
            await engine.advance_until(handle.result())
    assert caught.value.reason == "START_TO_CLOSE"
    assert await lengths_s(handle) == [30, 30]


async def test_start_to_close_does_not_count_the_time_in_the_queue(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="30s", retry=ONCE)
    async def call_partner() -> str:
        return "done"

    handle = await client.enqueue(call_partner)
    await engine.advance("1d")
    async with engine.worker([call_partner]):
        assert await handle.result() == "done"


async def test_schedule_to_close_bounds_all_attempts_together(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="10s", schedule_to_close="1h", retry=RetryPolicy())
    async def settle() -> None:
        raise ConnectionError("the bank does not answer")

    begin = engine.now()
    async with engine.worker([settle]):
        handle = await client.enqueue(settle)
        with pytest.raises(TaskTimedOut, match="schedule_to_close") as caught:
            await engine.advance_until(handle.result())
    assert caught.value.reason == "SCHEDULE_TO_CLOSE"
    # The reason of the last attempt is not lost over the deadline.
    assert "the bank does not answer" in str(caught.value)
    assert (engine.now() - begin).total_seconds() <= 3_600
    assert len(await handle.attempts()) > 10


async def test_schedule_to_close_ends_an_attempt_that_is_running(
    engine: TestEngine, client: Client
) -> None:
    @activity(schedule_to_close="1h")
    async def settle() -> None:
        activity.heartbeat()
        await hang()

    async with engine.worker([settle]):
        handle = await client.enqueue(settle)
        with pytest.raises(TaskTimedOut) as caught:
            await engine.advance_until(handle.result())
    assert caught.value.reason == "SCHEDULE_TO_CLOSE"
    assert await lengths_s(handle) == [3_600]


async def test_schedule_to_start_finds_a_queue_that_nobody_works_on_and_is_not_retried(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="10s", schedule_to_start="2m")
    async def notify() -> None: ...

    handle = await client.enqueue(notify)
    await engine.advance("119s")
    assert (await handle.describe()).state is TaskState.PENDING
    await engine.advance("1s")
    with pytest.raises(TaskTimedOut, match="schedule_to_start") as caught:
        await handle.result()
    assert caught.value.reason == "SCHEDULE_TO_START"
    assert await handle.attempts() == []


async def test_schedule_to_start_finds_workers_that_are_all_busy(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="1d", retry=ONCE)
    async def crunch() -> None:
        activity.heartbeat()
        await hang()

    @activity(start_to_close="10s", schedule_to_start="2m")
    async def notify() -> None: ...

    async with engine.worker([crunch, notify], max_concurrent=1):
        busy = await client.enqueue(crunch)
        await until_state(busy, TaskState.RUNNING)
        handle = await client.enqueue(notify)
        with pytest.raises(TaskTimedOut) as caught:
            await engine.advance_until(handle.result())
    assert caught.value.reason == "SCHEDULE_TO_START"


async def test_a_heartbeat_timeout_ends_an_attempt_that_says_nothing(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="1h", heartbeat_timeout="20s")
    async def convert() -> int:
        activity.heartbeat()
        if activity.info().attempt == 1:
            await hang()
        return activity.info().attempt

    async with engine.worker([convert]):
        handle = await client.enqueue(convert)
        await until_state(handle, TaskState.RUNNING)
        assert await engine.advance_until(handle.result()) == 2
    assert await outcomes(handle) == ["timed_out", "succeeded"]
    assert (await lengths_s(handle))[0] == 20


@pytest.mark.parametrize(
    "timeouts",
    [
        {"start_to_close": "20s"},
        {"schedule_to_close": "20s"},
        {"start_to_close": "1h", "heartbeat_timeout": "20s"},
    ],
)
async def test_who_waits_for_a_task_that_timed_out_learns_how_far_it_was(
    engine: TestEngine, client: Client, timeouts: dict[str, Any]
) -> None:
    @activity(retry=ONCE, **timeouts)
    async def convert() -> None:
        activity.heartbeat()
        await hang()

    async with engine.worker([convert]):
        handle = await client.enqueue(convert)
        await until_state(handle, TaskState.RUNNING)
        outside = client.completion(task_id=handle.task_id)
        await outside.heartbeat(2, "page", percent=40, message="page 2")
        with pytest.raises(TaskTimedOut) as caught:
            await engine.advance_until(handle.result())
    for told in (caught.value, await handle.describe()):
        assert told.progress == TaskProgress(40.0, "page 2")
        assert told.heartbeat_details
        assert told.heartbeat_details.read(int, str) == (2, "page")
        assert told.heartbeat_details.read() == (2, "page")


async def test_a_task_that_timed_out_before_it_began_has_no_heartbeat_details(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="10s", schedule_to_start="2m")
    async def notify() -> None: ...

    handle = await client.enqueue(notify)
    await engine.advance("2m")
    with pytest.raises(TaskTimedOut) as caught:
        await handle.result()
    for told in (caught.value, await handle.describe()):
        assert told.progress == TaskProgress()
        assert not told.heartbeat_details
        assert told.heartbeat_details.read() == ()
        with pytest.raises(PayloadError):
            told.heartbeat_details.read(int)


async def test_a_heartbeat_timeout_of_a_third_finds_a_hang_in_a_third_of_the_time(
    engine: TestEngine, client: Client
) -> None:
    """270 ms are expected: silence is found after 90, and work that takes 270 goes through."""
    steps: asyncio.Queue[None] = asyncio.Queue()

    @activity(start_to_close="10s", heartbeat_timeout="90ms", retry=ONCE)
    async def convert(*, is_hanging: bool) -> str:
        for step in range(6):
            activity.progress(message=f"step {step}")
            await (hang() if is_hanging else steps.get())
        return "done"

    async with engine.worker([convert]):
        stuck = await client.enqueue(convert, is_hanging=True)
        await until_state(stuck, TaskState.RUNNING)
        with pytest.raises(TaskTimedOut):
            await engine.advance_until(stuck.result())
        assert await lengths_s(stuck) == [0.09]

        good = await client.enqueue(convert, is_hanging=False)
        for step in range(6):
            await until_progress(good, f"step {step}")
            await engine.advance("45ms")
            steps.put_nowait(None)
        assert await good.result() == "done"
        assert await lengths_s(good) == [0.27]


@pytest.mark.parametrize(
    ("timeouts", "message"),
    [
        ({"start_to_close": "1h", "schedule_to_close": "1m"}, "start_to_close must not be longer"),
        ({"schedule_to_close": "1m", "schedule_to_start": "1h"}, "schedule_to_start must not"),
        ({"start_to_close": "1m", "heartbeat_timeout": "2m"}, "heartbeat_timeout must not"),
        ({"start_to_close": "0s"}, "start_to_close"),
        ({"start_to_close": "soon"}, "start_to_close"),
    ],
)
def test_timeouts_that_contradict_each_other_are_refused_where_they_are_written(
    timeouts: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):

        @activity(**timeouts)  # type: ignore[arg-type]
        def convert() -> None: ...


# -- Retry policy


@activity(start_to_close="10s")
async def fail(times: int) -> int:
    attempt = activity.info().attempt
    if attempt <= times:
        raise ConnectionError("try again")
    return attempt


async def test_the_initial_interval_is_the_first_wait(engine: TestEngine, client: Client) -> None:
    transient = fail.with_options(retry=RetryPolicy(initial_interval="1s"))
    limited = fail.with_options(retry=RetryPolicy(initial_interval="10s"))
    async with engine.worker([fail]):
        handles = [await client.enqueue(transient, 1), await client.enqueue(limited, 1)]
        for handle in handles:
            await engine.advance_until(handle.result())
        assert [await waits_s(handle) for handle in handles] == [[1], [10]]


async def test_the_backoff_coefficient_multiplies_from_wait_to_wait(
    engine: TestEngine, client: Client
) -> None:
    slow = fail.with_options(retry=RetryPolicy(initial_interval="2s", backoff_coefficient=3))
    async with engine.worker([fail]):
        doubling, tripling = await client.enqueue(fail, 4), await client.enqueue(slow, 4)
        await engine.advance_until(doubling.result())
        await engine.advance_until(tripling.result())
        assert await waits_s(doubling) == [1, 2, 4, 8]
        assert await waits_s(tripling) == [2, 6, 18, 54]


async def test_the_maximum_interval_caps_the_wait(engine: TestEngine, client: Client) -> None:
    policy = RetryPolicy(initial_interval="1m", maximum_interval="5m")
    async with engine.worker([fail]):
        handle = await client.enqueue(fail.with_options(retry=policy), 6)
        await engine.advance_until(handle.result())
        assert await waits_s(handle) == [60, 120, 240, 300, 300, 300]


async def test_without_a_maximum_interval_the_cap_is_a_hundred_first_waits(
    engine: TestEngine, client: Client
) -> None:
    async with engine.worker([fail]):
        handle = await client.enqueue(fail, 9)
        await engine.advance_until(handle.result())
        assert (await waits_s(handle))[-2:] == [100, 100]


async def test_max_attempts_bounds_the_number_of_attempts(
    engine: TestEngine, client: Client
) -> None:
    async with engine.worker([fail]):
        handle = await client.enqueue(fail.with_options(retry=RetryPolicy(max_attempts=5)), 100)
        with pytest.raises(TaskFailed, match="try again") as caught:
            await engine.advance_until(handle.result())
    assert (caught.value.reason, caught.value.attempt) == ("RETRIES_EXHAUSTED", 5)


async def test_max_attempts_of_0_tries_until_it_succeeds(
    engine: TestEngine, client: Client
) -> None:
    async with engine.worker([fail]):
        handle = await client.enqueue(fail.with_options(retry=RetryPolicy(max_attempts=0)), 40)
        assert await engine.advance_until(handle.result()) == 41


@pytest.mark.parametrize("named", ["OrderInvalid", OrderInvalid])
async def test_non_retryable_error_types_are_not_tried_again(
    engine: TestEngine, client: Client, named: str | type[Exception]
) -> None:
    @activity(start_to_close="10s", retry=RetryPolicy(non_retryable_error_types=(named,)))
    async def check(*, is_raised_by_name: bool) -> None:
        if is_raised_by_name:
            raise ApplicationError("no such item", type="OrderInvalid")
        raise OrderInvalid("no such item")

    async with engine.worker([check]):
        for is_raised_by_name in (False, True):
            with pytest.raises(TaskFailed, match="no such item") as caught:
                await client.run(check, is_raised_by_name=is_raised_by_name)
            assert (caught.value.reason, caught.value.attempt) == ("NON_RETRYABLE", 1)


async def test_retries_are_on_without_any_policy(engine: TestEngine, client: Client) -> None:
    async with engine.worker([fail]):
        assert await engine.advance_until(client.run(fail, 3)) == 4
