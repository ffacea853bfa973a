"""A worker's connection against a real server, through a proxy that can cut and mute."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import pytest

from tenure.core.limits import PAYLOAD_BYTES_MAX
from tenure.errors import NotFound
from tenure.sdk.activity.context import StopReason
from tenure.sdk.failure import WorkerEvicted, WorkerSuperseded
from tenure.v1 import task_pb2
from tenure.v1.worker_pb2 import WORKER_HEALTH_STUCK, WORKER_STATUS_OFFLINE
from tests.polling import eventually
from tests.sdk.worker.rig import Rig, messages, succeeded


async def test_tasks_are_started_and_their_ends_are_reported(rig: Rig) -> None:
    connection, executor = rig.connect()
    executor.at_once = succeeded
    tasks = await rig.enqueue(20)

    for task_id in tasks:
        assert (await rig.until(task_id, "SUCCEEDED")).output == b"1"

    assert sorted(each.task_id for each in executor.started) == sorted(tasks)
    assert connection.status().is_ready
    assert executor.worker_id == connection.status().worker_id


async def test_a_task_that_runs_for_a_while_is_confirmed(rig: Rig) -> None:
    _, executor = rig.connect()
    (task_id,) = await rig.enqueue()

    await rig.until(task_id, "RUNNING")

    executor.succeed(task_id)
    await rig.until(task_id, "SUCCEEDED")


async def test_heartbeat_details_reach_the_next_attempt(rig: Rig) -> None:
    _, executor = rig.connect()
    (task_id,) = await rig.enqueue()
    await eventually(lambda: executor.runs(task_id))

    executor.reporter.beat(task_pb2.TaskBeat(task_id=task_id, attempt=1, details=b"[7]"))
    failed = task_pb2.FINISH_KIND_FAILED
    error = task_pb2.TaskError(message="boom", next_retry_delay_ms=1)
    executor.end(task_pb2.TaskFinish(task_id=task_id, attempt=1, kind=failed, error=error))
    await eventually(lambda: executor.runs(task_id, 2))

    assert executor.started[-1].heartbeat_details == b"[7]"


async def test_a_cancel_reaches_an_activity_that_never_heartbeats(rig: Rig) -> None:
    _, executor = rig.connect()
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")

    await rig.cancel(task_id)
    await rig.until(task_id, "CANCELLED")

    assert executor.stopped == [(task_id, 1, StopReason.CANCELLED)]


async def test_an_attempt_that_an_operator_ends_is_stopped(rig: Rig) -> None:
    _, executor = rig.connect()
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")

    await rig.terminate(task_id)
    await eventually(lambda: executor.stopped)

    assert executor.stopped == [(task_id, 1, StopReason.TERMINATED)]


async def test_an_attempt_that_takes_too_long_is_stopped_as_timed_out(rig: Rig) -> None:
    _, executor = rig.connect()
    (task_id,) = await rig.enqueue(start_to_close_ms=1_000, retry=task_pb2.RetryPolicy())
    await eventually(lambda: executor.stopped)

    assert executor.stopped == [(task_id, 1, StopReason.TIMED_OUT)]


async def test_slots_of_abandoned_threads_are_not_filled(rig: Rig) -> None:
    connection, executor = rig.connect(max_concurrent=3, lease_ms=6_000)
    await eventually(lambda: connection.status().is_ready)
    executor.reporter.stuck(2)

    async def is_told() -> bool:
        # With the heartbeat that says so comes the smaller window, or it came before.
        worker = await rig.worker(connection.status().worker_id)
        return worker.health == WORKER_HEALTH_STUCK

    await eventually(is_told)
    first, second = await rig.enqueue(2)
    await eventually(lambda: executor.running)
    await rig.until(next(iter(executor.running))[0], "RUNNING")
    assert len(executor.running) == 1

    executor.reporter.stuck(0)
    await eventually(lambda: len(executor.running) == 2)
    assert {each[0] for each in executor.running} == {first, second}


async def test_a_result_that_is_too_large_fails_its_task(rig: Rig) -> None:
    _, executor = rig.connect()
    tasks = await rig.enqueue(2)
    await eventually(lambda: len(executor.running) == 2)

    executor.succeed(tasks[0], output=bytes(PAYLOAD_BYTES_MAX + 1))
    executor.succeed(tasks[1], output=bytes(3 * PAYLOAD_BYTES_MAX))

    for task_id in tasks:
        task = await rig.until(task_id, "FAILED")
        assert task.error.type == "payload_too_large"
        assert task.failure_reason == "NON_RETRYABLE"


async def test_outputs_that_fill_many_frames_all_arrive(rig: Rig) -> None:
    _, executor = rig.connect()
    tasks = await rig.enqueue(8)
    await eventually(lambda: len(executor.running) == 8)

    for task_id in tasks:
        executor.succeed(task_id, output=bytes(PAYLOAD_BYTES_MAX))

    for task_id in tasks:
        await rig.until(task_id, "SUCCEEDED")


# -- Lost connections


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_work_goes_on_through_a_restart_of_the_server_and_is_reported_after_it(
    rig: Rig, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection, executor = rig.connect()
    during, after = await rig.enqueue(2)
    await rig.until(during, "RUNNING")
    await rig.until(after, "RUNNING")
    worker_id = connection.status().worker_id

    await (rig.stop_server() if how == "stopped" else rig.kill_server())
    executor.succeed(during)
    # The worker notices, and keeps both.
    await eventually(lambda: any("tries again" in each for each in messages(caplog)))
    await rig.start_server()

    await rig.until(during, "SUCCEEDED")
    executor.succeed(after)
    await rig.until(after, "SUCCEEDED")
    for task_id in (during, after):
        assert await rig.outcomes(task_id) == ["succeeded"]
    assert connection.status().worker_id == worker_id
    assert executor.stopped == []


async def test_a_cut_connection_costs_nothing(rig: Rig) -> None:
    connection, executor = rig.connect()
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")
    worker_id = connection.status().worker_id

    for session_no in (2, 3, 4):
        rig.proxy.cut()

        async def is_back(wanted: int = session_no) -> bool:
            return (await rig.worker(worker_id)).session_no == wanted

        await eventually(is_back)
    executor.succeed(task_id)

    await rig.until(task_id, "SUCCEEDED")
    assert await rig.outcomes(task_id) == ["succeeded"]
    assert len(await rig.workers()) == 1


async def test_lost_answers_lose_no_task_and_charge_none(rig: Rig) -> None:
    _, executor = rig.connect(max_concurrent=10)
    executor.at_once = succeeded
    await eventually(lambda: executor.worker_id)
    rig.proxy.loss = 0.15
    tasks = await rig.enqueue(100)
    for task_id in tasks:
        await rig.until(task_id, "SUCCEEDED")
    rig.proxy.loss = 0.0

    assert rig.proxy.lost_count > 0
    for task_id in tasks:
        outcomes = await rig.outcomes(task_id)
        # What was handed out with a lost answer never arrived, and is free.
        assert outcomes[-1] == "succeeded"
        assert set(outcomes[:-1]) <= {"undelivered"}


async def test_a_partition_that_is_shorter_than_the_lease_changes_nothing(rig: Rig) -> None:
    connection, executor = rig.connect(lease_ms=20_000)
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")
    worker_id = connection.status().worker_id

    rig.proxy.is_muted = True
    executor.succeed(task_id)
    # What the worker says still arrives; it does not hear of it.
    await rig.until(task_id, "SUCCEEDED")
    rig.proxy.is_muted = False
    rig.proxy.cut()

    (other,) = await rig.enqueue()
    # The server may hand it to the session that was just cut, and once more to the next one.
    await eventually(lambda: executor.runs(other) or executor.runs(other, 2))
    assert connection.status().worker_id == worker_id
    assert executor.exclusive_stops == 0


async def test_a_partition_that_is_longer_than_the_lease_makes_a_new_incarnation(
    fast: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    connection, executor = fast.connect()
    (task_id,) = await fast.enqueue()
    await fast.until(task_id, "RUNNING")
    worker_id = connection.status().worker_id

    target, fast.proxy.target = fast.proxy.target, "127.0.0.1:1"
    fast.proxy.cut()
    # It fences itself before the server judges.
    await eventually(lambda: executor.exclusive_stops == 1)
    assert not connection.status().is_ready
    assert executor.runs(task_id)
    await fast.until(task_id, "PENDING")
    assert (await fast.worker(worker_id)).status == WORKER_STATUS_OFFLINE
    fast.proxy.target = target

    await eventually(lambda: executor.runs(task_id, 2))
    assert executor.stopped == [(task_id, 1, StopReason.LOST_LEASE)]
    assert connection.status().worker_id not in {"", worker_id}
    assert executor.worker_id == connection.status().worker_id
    executor.succeed(task_id, 2)
    await fast.until(task_id, "SUCCEEDED")
    assert await fast.outcomes(task_id) == ["worker_lost", "succeeded"]
    assert any("its lease may be over" in each for each in messages(caplog))


async def test_a_completion_after_the_lease_is_refused_and_forgotten(fast: Rig) -> None:
    connection, executor = fast.connect()
    (task_id,) = await fast.enqueue()
    await fast.until(task_id, "RUNNING")

    target, fast.proxy.target = fast.proxy.target, "127.0.0.1:1"
    fast.proxy.cut()
    executor.succeed(task_id, output=b"late")
    await fast.until(task_id, "PENDING")
    fast.proxy.target = target

    await eventually(lambda: executor.runs(task_id, 2))
    executor.succeed(task_id, 2, output=b"new")
    assert (await fast.until(task_id, "SUCCEEDED")).output == b"new"
    connection.shut_down()
    assert await fast.ended(connection) is None


async def test_what_arrives_while_the_lease_may_be_over_waits_for_the_renewal(fast: Rig) -> None:
    connection, executor = fast.connect()
    await eventually(lambda: connection.status().is_ready)
    worker_id = connection.status().worker_id

    # The server hears the worker and renews; the worker hears nothing.
    fast.proxy.is_muted = True
    await eventually(lambda: executor.exclusive_stops == 1)
    (task_id,) = await fast.enqueue()
    await asyncio.sleep(0)
    assert executor.started == []
    fast.proxy.is_muted = False
    fast.proxy.cut()

    await eventually(lambda: executor.started)
    executor.succeed(task_id, executor.started[0].attempt)
    await fast.until(task_id, "SUCCEEDED")
    assert worker_id


# -- Ends that are the server's


async def test_a_worker_of_the_same_name_takes_the_place_of_the_old_one(rig: Rig) -> None:
    old, old_executor = rig.connect(name="mailer")
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")

    new, new_executor = rig.connect(name="mailer")
    failure = await rig.ended(old)

    assert isinstance(failure, WorkerSuperseded)
    assert "'mailer'" in str(failure)
    assert old_executor.stopped == [(task_id, 1, StopReason.LOST_LEASE)]
    assert old_executor.is_closed
    await eventually(lambda: new_executor.runs(task_id, 2))
    assert new.status().is_ready


async def test_an_evicted_worker_stops_and_says_so(rig: Rig) -> None:
    connection, executor = rig.connect()
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")

    await rig.evict(connection.status().worker_id)
    failure = await rig.ended(connection)

    assert isinstance(failure, WorkerEvicted)
    assert executor.stopped == [(task_id, 1, StopReason.LOST_LEASE)]


# -- The beginning


async def test_an_unknown_namespace_ends_the_worker_at_once(rig: Rig) -> None:
    connection, _ = rig.connect(namespace="nobody/knows")

    failure = await rig.ended(connection)

    assert isinstance(failure, NotFound)
    assert "nobody/knows" in str(failure)


async def test_a_server_that_is_not_there_yet_is_waited_for_and_complained_about_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tenure.worker")
    await rig.stop_server()
    rig.proxy.target = "127.0.0.1:1"
    tries = 0

    is_over = threading.Event()

    def turn_away(listener: socket.socket) -> None:
        nonlocal tries
        while not is_over.is_set():
            with suppress(TimeoutError):
                accepted, _ = listener.accept()
                accepted.close()
                tries += 1

    # In a thread: asyncio leaks a connection that it accepts while it is cancelled.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        doorman = asyncio.create_task(asyncio.to_thread(turn_away, listener))
        port = listener.getsockname()[1]
        connection, _ = rig.connect(targets=[f"127.0.0.1:{port}", rig.proxy.address])
        await eventually(lambda: tries >= 3)
        assert not connection.status().is_ready
        await rig.start_server()
        is_over.set()
        await doorman

    await eventually(lambda: connection.status().is_ready)
    said = messages(caplog)
    assert sum("tries again" in each for each in said) == 1
    assert sum("answers again" in each for each in said) == 1


async def test_the_next_target_is_taken_when_one_does_not_answer(rig: Rig) -> None:
    connection, _ = rig.connect(targets=["127.0.0.1:1", rig.proxy.address])

    await eventually(lambda: connection.status().is_ready)


async def test_a_worker_that_is_to_stop_before_it_was_registered_ends(rig: Rig) -> None:
    await rig.stop_server()
    rig.proxy.target = "127.0.0.1:1"
    connection, executor = rig.connect()
    connection.shut_down()

    assert await rig.ended(connection) is None
    assert executor.is_closed
