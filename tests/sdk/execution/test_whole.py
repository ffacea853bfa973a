"""Activities in real workers, with a real server and a real client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenure import (
    Activity,
    CancelTimedOut,
    Client,
    RetryPolicy,
    TaskCancelled,
    TaskFailed,
    TaskTimedOut,
    Worker,
    activity,
)
from tenure.v1 import worker_pb2
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.execution import whole_activities as on
from tests.sdk.worker.rig import Rig, open_rig

TWICE = RetryPolicy(initial_interval="10ms", max_attempts=2)
LEAVE = threading.Event()
SEEN: list[Any] = []


@activity(start_to_close="30s", retry=on.ONCE)
def stay() -> None:
    """Wait where no bytecode runs."""
    activity.progress(1, "stays")
    LEAVE.wait(WAIT_S)


@activity(start_to_close="30s", retry=on.SOON)
async def keys() -> None:
    SEEN.append((activity.idempotency_key(), activity.attempt_key()))
    if activity.info().failure_count == 0:
        raise ValueError("once more")


@activity(start_to_close="30s", completes_later=True)
async def approve() -> str:
    SEEN.append(activity.info())
    activity.complete_later()


@activity(start_to_close="30s", heartbeat_timeout="300ms", retry=on.SOON)
async def fall_silent() -> str | None:
    if activity.info().attempt > 1:
        return activity.heartbeat_details(str)
    activity.heartbeat("the last sign")
    try:
        await asyncio.sleep(WAIT_S)
    finally:
        SEEN.append(activity.stop_reason())
    return None


@activity(start_to_close="30s", heartbeat_timeout="300ms", retry=on.SOON)
def leave_slowly() -> None:
    number = activity.info().attempt
    SEEN.append(("begins", number))
    if number == 1:
        with activity.shield():
            LEAVE.wait(WAIT_S)
            SEEN.append(("ends", number))


@activity(start_to_close="1s", cancel_grace="2s", retry=TWICE)
def hang() -> str:
    """Wait in the first attempt where nothing can raise a stop."""
    SEEN.append(time.time())
    if activity.info().failure_count == 0:
        LEAVE.wait(WAIT_S)
    return "done"


ALL = (
    *on.RESUME,
    *on.WAIT,
    on.die_first,
    on.die_always,
    stay,
    keys,
    approve,
    fall_silent,
    leave_slowly,
    hang,
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    LEAVE.clear()
    SEEN.clear()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as made:
        yield made


@pytest.fixture
async def client(rig: Rig) -> AsyncIterator[Client]:
    async with Client(rig.proxy.address) as made:
        yield made


@contextlib.asynccontextmanager
async def working(rig: Rig, **fields: Any) -> AsyncIterator[Worker]:
    worker = Worker(rig.proxy.address, activities=ALL, **fields)
    running = asyncio.get_running_loop().create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.shutdown("100ms")
        await running


@pytest.mark.parametrize("resume", on.RESUME, ids=lambda each: each.name)
async def test_the_next_attempt_goes_on_from_the_last_heartbeat(
    rig: Rig, client: Client, resume: Activity[[int], list[int]]
) -> None:
    async with working(rig):
        handle = await client.enqueue(resume, 4)
        assert await handle.result(timeout="30s") == [1, 1, 2, 2]
        assert [each.outcome for each in await handle.attempts()] == ["failed", "succeeded"]


@pytest.mark.parametrize("mode", ["session", "poll"])
@pytest.mark.parametrize("wait", on.WAIT, ids=lambda each: each.name)
async def test_an_activity_that_never_asks_is_cancelled(
    rig: Rig, client: Client, wait: Activity[[], None], mode: str
) -> None:
    async with working(rig, mode=mode, lease="10s"):
        handle = await client.enqueue(wait)
        await rig.until(handle.task_id, "RUNNING")
        await handle.cancel("not needed")
        with pytest.raises(TaskCancelled, match="not needed"):
            await handle.result(timeout="30s")
        assert [each.outcome for each in await handle.attempts()] == ["cancelled"]


@pytest.mark.parametrize("wait", on.WAIT, ids=lambda each: each.name)
async def test_an_activity_that_takes_too_long_times_out(
    rig: Rig, client: Client, wait: Activity[[], None]
) -> None:
    async with working(rig) as worker:
        handle = await client.enqueue(wait.with_options(start_to_close="700ms"))
        with pytest.raises(TaskTimedOut, match="start_to_close"):
            await handle.result(timeout="30s")
        await eventually(lambda: worker.active_count == 0)


async def test_an_activity_that_falls_silent_is_told_and_tried_again(
    rig: Rig, client: Client
) -> None:
    async with working(rig):
        assert await client.run(fall_silent) == "the last sign"
        assert SEEN == ["timed_out"]


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_two_attempts_of_one_task_never_run_side_by_side(
    rig: Rig, client: Client, mode: str
) -> None:
    async with working(rig, mode=mode):
        handle = await client.enqueue(leave_slowly)

        async def is_handed_out_again() -> bool:
            return (await rig.task(handle.task_id)).attempt > 1

        await eventually(is_handed_out_again)
        # What is given to the same worker after the second attempt has run.
        await client.run(on.RESUME[1], 1)
        assert SEEN == [("begins", 1)]
        LEAVE.set()
        await handle.result(timeout="30s")
        # While it waited it was handed back before its own time was over.
        begun, ended, (what, number) = SEEN
        assert (begun, ended) == (("begins", 1), ("ends", 1))
        assert (what, number > 1) == ("begins", True)


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_the_next_attempt_starts_once_the_one_that_does_not_stop_is_abandoned(
    rig: Rig, client: Client, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(rig, mode=mode):
        assert await client.run(hang, timeout="30s") == "done"
        LEAVE.set()
    (abandoned_at,) = [each.created for each in caplog.records if "abandoned" in each.message]
    _, second_at = SEEN
    assert abandoned_at <= second_at


async def test_a_child_that_was_killed_is_tried_again_from_its_last_heartbeat(
    rig: Rig, client: Client
) -> None:
    async with working(rig):
        handle = await client.enqueue(on.die_first)
        assert await handle.result(timeout="30s") == "before the end"
        first = (await handle.attempts())[0]
        assert first.error is not None
        assert first.error.type == "ProcessKilled"
        assert "SIGKILL" in first.error.message
        assert first.error.category == "INFRASTRUCTURE"


async def test_the_caller_learns_how_a_child_has_ended(rig: Rig, client: Client) -> None:
    async with working(rig):
        with pytest.raises(TaskFailed, match="exit code 3") as caught:
            await client.run(on.die_always)
        assert caught.value.error is not None
        assert caught.value.error.category == "INFRASTRUCTURE"


async def test_input_that_does_not_fit_is_not_tried_again(rig: Rig, client: Client) -> None:
    async with working(rig):
        handle = await client.enqueue_named(
            "resume_in_a_thread", {"until": "many"}, start_to_close="30s"
        )
        with pytest.raises(TaskFailed, match="until") as caught:
            await handle.result(timeout="30s")
        assert caught.value.reason == "NON_RETRYABLE"
        assert caught.value.error is not None
        assert caught.value.error.category == "DATA_QUALITY"


async def test_a_thread_that_does_not_stop_shows_in_the_health_of_the_worker(
    rig: Rig, client: Client
) -> None:
    async with working(rig, lease="10s") as worker:
        handle = await client.enqueue(stay.with_options(cancel_grace="300ms"))
        await rig.until(handle.task_id, "RUNNING")
        await handle.cancel()
        with pytest.raises(CancelTimedOut):
            await handle.result(timeout="30s")

        async def is_stuck() -> bool:
            health = (await rig.worker(worker.worker_id)).health
            return health == worker_pb2.WORKER_HEALTH_STUCK

        await eventually(is_stuck)
        assert worker.active_count == 1
        LEAVE.set()
        await eventually(lambda: worker.active_count == 0)


async def test_keys_tell_attempts_apart_and_keep_them_together(rig: Rig, client: Client) -> None:
    async with working(rig):
        retried = keys.with_options(retry=RetryPolicy(initial_interval="10ms", max_attempts=2))
        handle = await client.enqueue(retried)
        await handle.result(timeout="30s")
        (first, first_attempt), (second, second_attempt) = SEEN
        assert first == second == handle.task_id
        assert (first_attempt, second_attempt) == (f"{first}:1", f"{first}:2")


@pytest.mark.parametrize("by", ["token", "id"])
async def test_somebody_else_completes_what_completes_later(
    rig: Rig, client: Client, by: str
) -> None:
    async with working(rig) as worker:
        handle = await client.enqueue(approve)
        await rig.until(handle.task_id, "WAITING")
        assert worker.active_count == 0
        (info,) = SEEN
        completion = (
            client.completion(token=info.token)
            if by == "token"
            else client.completion(task_id=handle.task_id)
        )
        await completion.complete("granted")
        assert await handle.result(timeout="30s") == "granted"
