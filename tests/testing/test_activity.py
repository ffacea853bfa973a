"""An activity alone: what it sees, what is recorded, and how it is stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest

from tenure import StopReason, activity
from tenure.sdk.activity.context import CompletesLater, Info, Stopped
from tenure.testing import ActivityEnvironment, Progress, run_activity
from tests.bounds import ANSWER_S


@activity(start_to_close="30s", queue="imports", heartbeat_timeout="10s")
async def import_rows(count: int) -> int:
    done = activity.heartbeat_details(int) if activity.has_heartbeat_details() else 0
    while done < count:
        done += 10
        activity.heartbeat(done)
        activity.progress(100 * done / count, f"{done} rows")
        await asyncio.sleep(0)
    return done


@activity(start_to_close="30s")
def add(left: int, right: int = 1) -> int:
    activity.heartbeat()
    return left + right


@activity(start_to_close="1d", completes_later=True)
async def approve() -> str:
    assert activity.info().token
    activity.complete_later()


class Shop:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @activity(start_to_close="30s")
    async def greet(self, name: str) -> str:
        return f"{self.prefix} {name}"


async def test_an_async_activity_runs_and_its_reports_are_recorded() -> None:
    env = ActivityEnvironment()
    assert await env.run(import_rows, 20) == 20
    assert env.heartbeats == [(10,), (20,)]
    assert env.progress == [Progress(50.0, "10 rows"), Progress(100.0, "20 rows")]


async def test_an_activity_resumes_from_what_an_earlier_attempt_has_left() -> None:
    env = ActivityEnvironment(attempt=2, heartbeat_details=[90])
    assert await env.run(import_rows, 100) == 100
    assert env.heartbeats == [(100,)]


def test_a_sync_activity_runs_in_the_calling_thread_without_a_loop() -> None:
    env = ActivityEnvironment()
    assert env.run(add, 2, right=3) == 5
    assert env.heartbeats == [()]


async def test_one_activity_is_run_by_a_function() -> None:
    assert await run_activity(import_rows, 10, attempt=2, heartbeat_details=[0]) == 10
    assert run_activity(add, 2, 3) == 5
    assert await run_activity(Shop("Hello").greet, "Ann") == "Hello Ann"


async def test_arguments_that_do_not_fit_are_a_type_error() -> None:
    with pytest.raises(TypeError):
        await run_activity(import_rows)


def test_the_info_is_that_of_the_declaration() -> None:
    seen: list[Info] = []

    @activity(start_to_close="30s", queue="mail", priority=2, labels={"team": "a"})
    def look() -> None:
        seen.append(activity.info())

    run_activity(look, attempt=3)
    (info,) = seen
    assert (info.attempt, info.failure_count, info.type, info.queue) == (3, 2, "look", "mail")
    assert info.start_to_close == timedelta(seconds=30)
    assert (info.priority, info.labels) == (2, {"team": "a"})


def test_an_info_of_the_test_is_what_the_activity_sees() -> None:
    info = Info(
        task_id="t", attempt=7, type="add", queue="q", namespace="n", worker_id="w", user_key="o-1"
    )

    @activity(start_to_close="30s")
    def look() -> tuple[str, int]:
        return activity.idempotency_key(), activity.info().attempt

    assert run_activity(look, info=info) == ("o-1", 7)


def test_a_plain_function_runs_as_well() -> None:
    assert run_activity(lambda: activity.info().attempt, attempt=4) == 4


async def test_a_failure_reaches_the_test_as_it_was_raised() -> None:
    @activity(start_to_close="30s")
    async def fail() -> None:
        raise KeyError("why")

    with pytest.raises(KeyError, match="why"):
        await run_activity(fail)


async def test_leaving_the_completion_to_others_shows() -> None:
    with pytest.raises(CompletesLater):
        await run_activity(approve)


@pytest.mark.parametrize("reason", StopReason)
async def test_an_async_activity_is_cancelled_with_a_reason(reason: StopReason) -> None:
    seen: list[StopReason | None] = []
    started = asyncio.Event()

    @activity(start_to_close="30s")
    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(ANSWER_S)
        finally:
            seen.append(activity.stop_reason())

    env = ActivityEnvironment()
    running = asyncio.ensure_future(env.run(wait))
    await started.wait()
    env.cancel(reason)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == [reason]
    assert env.stop_reason is reason


async def test_a_shield_keeps_the_cancellation_until_its_end() -> None:
    done: list[str] = []

    @activity(start_to_close="30s")
    async def pay() -> None:
        with activity.shield():
            env.cancel()
            await asyncio.sleep(0)
            done.append("paid")
        await asyncio.sleep(ANSWER_S)

    env = ActivityEnvironment()
    with pytest.raises(asyncio.CancelledError):
        await env.run(pay)
    assert done == ["paid"]


async def test_an_activity_that_is_cancelled_from_another_thread_stops() -> None:
    @activity(start_to_close="30s")
    async def wait() -> None:
        await asyncio.to_thread(env.cancel)
        await asyncio.sleep(ANSWER_S)

    env = ActivityEnvironment()
    with pytest.raises(asyncio.CancelledError):
        await env.run(wait)


def test_a_sync_activity_is_stopped_from_another_thread() -> None:
    env = ActivityEnvironment()
    started = threading.Event()

    @activity(start_to_close="30s")
    def spin() -> str:
        try:
            started.set()
            while True:
                time.sleep(0.001)
        except Stopped:
            return f"cleaned up: {activity.stop_reason()}"

    def stop() -> None:
        started.wait(ANSWER_S)
        env.cancel(StopReason.TIMED_OUT)

    thread = threading.Thread(target=stop)
    thread.start()
    assert env.run(spin) == "cleaned up: timed_out"
    thread.join()


def test_a_sync_activity_is_stopped_at_its_heartbeat() -> None:
    env = ActivityEnvironment(on_heartbeat=lambda env: env.cancel())
    with pytest.raises(Stopped):
        env.run(add, 1)
    assert env.heartbeats == [()]


def test_a_shield_keeps_the_stop_of_a_thread_until_its_end() -> None:
    done: list[str] = []

    @activity(start_to_close="30s")
    def pay() -> None:
        with activity.shield():
            thread = threading.Thread(target=env.cancel)
            thread.start()
            thread.join()
            done.append("paid")
        done.append("never")

    env = ActivityEnvironment()
    with pytest.raises(Stopped):
        env.run(pay)
    assert done == ["paid"]


def test_a_stop_that_comes_too_late_hits_nobody() -> None:
    env = ActivityEnvironment()
    assert env.run(add, 1) == 2
    env.cancel()
    assert sum(range(1_000)) == 499_500


def test_what_was_cancelled_before_does_not_run() -> None:
    env = ActivityEnvironment()
    env.cancel()
    with pytest.raises(Stopped):
        env.run(add, 1)
    assert env.heartbeats == []


def test_outside_of_an_activity_there_is_no_context_afterwards() -> None:
    run_activity(add, 1)
    with pytest.raises(RuntimeError, match="run_activity"):
        activity.info()
