"""How a worker stops: what it finishes, what it hands back, and when it gives up."""

from __future__ import annotations

import pytest

from tenure.errors import Unavailable
from tenure.sdk.worker.connection import registration
from tenure.sdk.worker.connection.drain import FLUSH_S, NOTICE_S, WorkerDrain
from tenure.v1 import task_pb2
from tenure.v1.worker_pb2 import WORKER_STATUS_OFFLINE
from tests.polling import eventually
from tests.sdk.worker.rig import Rig, messages, succeeded

SUCCEEDED = task_pb2.TASK_STATE_SUCCEEDED
PENDING = task_pb2.TASK_STATE_PENDING

MODES = pytest.mark.parametrize("mode", ["session", "poll"])


# -- The rule


def test_what_is_held_is_handed_back_at_the_deadline() -> None:
    drain = WorkerDrain(100, 30)

    assert not drain.is_due(129, is_known=True)
    assert drain.is_due(130, is_known=True)


def test_a_drain_can_be_shortened_and_not_lengthened() -> None:
    drain = WorkerDrain(100, 30)
    drain.shorten(110)
    drain.shorten(120)

    assert drain.is_due(110, is_known=True)


def test_the_server_has_a_moment_to_learn_of_the_drain_before_tasks_are_handed_back() -> None:
    drain = WorkerDrain(100, 0)

    assert not drain.is_due(100, is_known=False)
    assert drain.is_due(100 + NOTICE_S, is_known=False)


def test_the_server_is_waited_for_until_the_deadline_while_there_is_something_to_report() -> None:
    drain = WorkerDrain(100, 30)

    assert not drain.is_hopeless(129, held_count=1, is_connected=False)
    assert not drain.is_hopeless(129 + FLUSH_S, held_count=1, is_connected=False)
    assert drain.is_hopeless(130 + FLUSH_S, held_count=1, is_connected=False)


def test_without_anything_to_report_the_server_is_waited_for_only_for_a_moment() -> None:
    drain = WorkerDrain(100, 300)

    assert not drain.is_hopeless(101, held_count=0, is_connected=False)
    assert drain.is_hopeless(100 + FLUSH_S, held_count=0, is_connected=False)
    assert not drain.is_hopeless(100 + FLUSH_S, held_count=0, is_connected=True)


# -- With a server


@MODES
async def test_a_drain_finishes_what_runs_and_takes_nothing_new(rig: Rig, mode: str) -> None:
    connection, executor = rig.connect(mode=mode)
    (running,) = await rig.enqueue()
    await eventually(lambda: executor.runs(running))
    worker_id = connection.status().worker_id

    connection.shut_down()
    await eventually(lambda: connection.status().status == "draining")

    async def is_draining() -> bool:
        return (await rig.worker(worker_id)).drain_deadline_at_ms > 0

    await eventually(is_draining)
    (later,) = await rig.enqueue()
    assert not connection.status().is_ready
    executor.succeed(running)

    assert await rig.ended(connection) is None
    await rig.until(running, "SUCCEEDED")
    assert (await rig.task(later)).attempt == 0
    worker = await rig.worker(worker_id)
    assert worker.status == WORKER_STATUS_OFFLINE
    assert worker.end_reason == "deregistered"
    assert executor.hand_backs == 0
    assert executor.is_closed


@MODES
async def test_at_the_deadline_the_rest_is_handed_back_without_a_charge(
    rig: Rig, mode: str
) -> None:
    connection, executor = rig.connect(mode=mode)
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")
    executor.reporter.beat(task_pb2.TaskBeat(task_id=task_id, attempt=1, details=b"[3]"))

    connection.shut_down(0.2)

    assert await rig.ended(connection) is None
    task = await rig.until(task_id, "PENDING")
    assert await rig.outcomes(task_id) == ["released"]
    assert (task.failure_count, task.interruption_count) == (0, 0)
    assert task.heartbeat_details == b"[3]"
    assert executor.hand_backs == 1


@MODES
async def test_a_second_request_hands_back_at_once(rig: Rig, mode: str) -> None:
    connection, executor = rig.connect(mode=mode)
    tasks = await rig.enqueue(3)
    await eventually(lambda: len(executor.running) == 3)

    connection.request_stop()
    await eventually(lambda: connection.status().status == "draining")
    connection.request_stop()

    assert await rig.ended(connection) is None
    for task_id in tasks:
        assert await rig.outcomes(task_id) == ["released"]


@MODES
async def test_an_operator_can_drain_a_worker(rig: Rig, mode: str) -> None:
    # A short lease is a short interval, by which a poll hears of it.
    connection, executor = rig.connect(mode=mode, lease_ms=6_000)
    (task_id,) = await rig.enqueue()
    await eventually(lambda: executor.runs(task_id))

    await rig.drain(connection.status().worker_id)
    await eventually(lambda: connection.status().status == "draining")
    executor.succeed(task_id)

    assert await rig.ended(connection) is None
    await rig.until(task_id, "SUCCEEDED")


async def test_the_deadline_of_an_operator_counts_and_a_first_signal_is_no_second(rig: Rig) -> None:
    connection, executor = rig.connect(drain_deadline_ms=1)
    (task_id,) = await rig.enqueue()
    await eventually(lambda: executor.runs(task_id))

    # Five minutes, where the worker's own deadline would be over at once.
    await rig.drain(connection.status().worker_id)
    await eventually(lambda: connection.status().status == "draining")
    await rig.until(task_id, "RUNNING")
    assert executor.hand_backs == 0
    connection.request_stop()

    assert await rig.ended(connection) is None
    assert await rig.outcomes(task_id) == ["released"]


@MODES
async def test_under_load_nothing_is_lost_charged_or_run_twice(rig: Rig, mode: str) -> None:
    tasks = await rig.enqueue(1_000)
    ran: list[str] = []
    for _ in range(4):
        connection, executor = rig.connect(mode=mode, max_concurrent=20)
        executor.at_once = succeeded
        await executor.has_started(100)
        connection.shut_down()
        assert await rig.ended(connection) is None
        ran += [each.task_id for each in executor.started]

    assert len(set(ran)) == len(ran)
    for task_id in tasks:
        task = await rig.task(task_id)
        assert task.state == (SUCCEEDED if task_id in ran else PENDING)
        assert (task.failure_count, task.interruption_count) == (0, 0)


async def test_a_drain_during_an_outage_reports_when_the_server_is_back(rig: Rig) -> None:
    connection, executor = rig.connect()
    done, running = await rig.enqueue(2)
    await rig.until(done, "RUNNING")
    await rig.until(running, "RUNNING")

    await rig.kill_server()
    executor.succeed(done)
    connection.shut_down()
    await eventually(lambda: connection.status().status == "draining")
    await rig.start_server()
    await rig.until(done, "SUCCEEDED")
    executor.succeed(running)

    assert await rig.ended(connection) is None
    for task_id in (done, running):
        assert await rig.outcomes(task_id) == ["succeeded"]


async def test_ends_that_cannot_be_reported_by_the_deadline_are_an_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.sdk.worker.connection.drain.FLUSH_S", 0.1)
    monkeypatch.setattr(registration, "FAREWELL_S", 0.1)
    connection, executor = rig.connect()
    (task_id,) = await rig.enqueue()
    await rig.until(task_id, "RUNNING")
    await rig.kill_server()
    executor.succeed(task_id)
    connection.shut_down(0.1)

    failure = await rig.ended(connection)

    assert isinstance(failure, Unavailable)
    assert "1 finished task(s) could not be reported" in str(failure)


async def test_a_worker_that_holds_nothing_ends_although_no_server_answers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tenure.sdk.worker.connection.drain.FLUSH_S", 0.1)
    monkeypatch.setattr(registration, "FAREWELL_S", 0.1)
    connection, _ = rig.connect()
    await eventually(lambda: connection.status().is_ready)
    await rig.kill_server()
    connection.shut_down()

    assert await rig.ended(connection) is None
    assert any("ends without deregistering" in each for each in messages(caplog))
