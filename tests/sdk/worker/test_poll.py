"""The poll mode against a real server."""

from __future__ import annotations

import pytest

from tenure.sdk.activity.context import StopReason
from tenure.sdk.failure import WorkerEvicted
from tenure.v1 import task_pb2
from tests.polling import eventually
from tests.sdk.worker.rig import FAST, Rig, messages, succeeded

# Heartbeats carry cancels here, so they come often.
LEASE_MS = 3_000


async def test_tasks_are_polled_confirmed_and_reported(rig: Rig) -> None:
    _, executor = rig.connect(mode="poll", max_concurrent=5)
    tasks = await rig.enqueue(12)
    await eventually(lambda: len(executor.running) == 5)
    await rig.until(tasks[0], "RUNNING")
    # A full worker asks for no more.
    assert len(executor.running) == 5

    executor.at_once = succeeded
    for task_id, attempt in list(executor.running):
        executor.succeed(task_id, attempt)

    for task_id in tasks:
        await rig.until(task_id, "SUCCEEDED")
        assert await rig.outcomes(task_id) == ["succeeded"]


async def test_a_cancel_reaches_an_activity_that_never_heartbeats(rig: Rig) -> None:
    _, executor = rig.connect(mode="poll", lease_ms=LEASE_MS)
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")

    await rig.cancel(task_id)
    await rig.until(task_id, "CANCELLED")

    assert executor.stopped == [(task_id, 1, StopReason.CANCELLED)]


async def test_a_heartbeat_of_a_task_is_answered_with_its_cancel(rig: Rig) -> None:
    _, executor = rig.connect(mode="poll")
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")
    await rig.cancel(task_id)

    executor.reporter.beat(task_pb2.TaskBeat(task_id=task_id, attempt=1))

    await rig.until(task_id, "CANCELLED")


async def test_lost_answers_lose_no_task_and_no_running_attempt(rig: Rig) -> None:
    connection, executor = rig.connect(mode="poll", max_concurrent=10, lease_ms=8_000)
    (long,) = await rig.enqueue()
    await rig.until(long, "RUNNING")
    worker_id = connection.status().worker_id
    executor.at_once = succeeded
    rig.proxy.loss = 0.2
    tasks = await rig.enqueue(40)

    async def has_gone_on() -> bool:
        # Answers to heartbeats are lost as well: the chain of tokens breaks and goes on.
        return (await rig.worker(worker_id)).total_completed >= 20

    await eventually(has_gone_on)
    rig.proxy.loss = 0.0
    executor.succeed(long)
    await rig.until(long, "SUCCEEDED")

    assert await rig.outcomes(long) == ["succeeded"]
    assert rig.proxy.lost_count > 0
    for task_id in tasks:
        assert set(await rig.outcomes(task_id)) <= {"succeeded", "undelivered", ""}


async def test_after_a_lost_answer_to_a_heartbeat_the_full_set_keeps_what_is_held(rig: Rig) -> None:
    connection, executor = rig.connect(mode="poll", lease_ms=LEASE_MS)
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")
    worker_id = connection.status().worker_id
    heard_at = (await rig.worker(worker_id)).last_heartbeat_at.ToMilliseconds()

    async def is_heard_again(after_ms: int) -> bool:
        worker = await rig.worker(worker_id)
        return worker.last_heartbeat_at.ToMilliseconds() > after_ms

    rig.proxy.is_muted = True
    await eventually(lambda: is_heard_again(heard_at))
    muted_at = (await rig.worker(worker_id)).last_heartbeat_at.ToMilliseconds()
    rig.proxy.is_muted = False
    rig.proxy.cut()
    # Only a heartbeat with the right token is heard.
    await eventually(lambda: is_heard_again(muted_at))

    executor.succeed(task_id)
    await rig.until(task_id, "SUCCEEDED")
    assert await rig.outcomes(task_id) == ["succeeded"]
    assert connection.status().worker_id == worker_id


async def test_a_result_that_is_too_large_fails_its_own_task_alone(rig: Rig) -> None:
    _, executor = rig.connect(mode="poll")
    large, small = await rig.enqueue(2)
    await eventually(lambda: len(executor.running) == 2)

    executor.succeed(large, output=bytes(2 * 1024 * 1024 + 1))
    executor.succeed(small)

    assert (await rig.until(large, "FAILED")).error.type == "payload_too_large"
    await rig.until(small, "SUCCEEDED")


async def test_completions_are_kept_through_an_outage(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    _, executor = rig.connect(mode="poll")
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")

    await rig.kill_server()
    executor.succeed(task_id)
    await eventually(lambda: any("tries again" in each for each in messages(caplog)))
    await rig.start_server()

    await rig.until(task_id, "SUCCEEDED")
    assert await rig.outcomes(task_id) == ["succeeded"]


async def test_an_evicted_worker_stops_and_says_so(rig: Rig) -> None:
    connection, executor = rig.connect(mode="poll", lease_ms=LEASE_MS)
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")

    await rig.evict(connection.status().worker_id)

    assert isinstance(await rig.ended(connection), WorkerEvicted)
    assert executor.stopped == [(task_id, 1, StopReason.LOST_LEASE)]


async def test_a_worker_that_was_judged_lost_registers_again(fast: Rig) -> None:
    assert FAST["poll_lease_ms"] < LEASE_MS
    connection, executor = fast.connect(mode="poll")
    (task_id,) = await fast.enqueue()
    await fast.until(task_id, "RUNNING")
    worker_id = connection.status().worker_id

    target, fast.proxy.target = fast.proxy.target, "127.0.0.1:1"
    fast.proxy.cut()
    await eventually(lambda: executor.exclusive_stops == 1)
    await fast.until(task_id, "PENDING")
    fast.proxy.target = target

    await eventually(lambda: executor.runs(task_id, 2))
    assert connection.status().worker_id not in {"", worker_id}
    executor.succeed(task_id, 2)
    await fast.until(task_id, "SUCCEEDED")
