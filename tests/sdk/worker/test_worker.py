"""The public ``Worker``, with real activities, threads, signals and processes."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import NotFound
from tenure.sdk.activity.decorator import activity
from tenure.sdk.worker.worker import Worker
from tenure.v1.task_pb2 import TASK_STATE_SUCCEEDED
from tests.polling import eventually
from tests.sdk.worker.rig import Rig, messages, open_rig
from tests.wire.process import Process


@activity(start_to_close="30s")
async def mail(text: str = "") -> str:
    if text == "wait":
        await asyncio.sleep(60)
    return text.upper()


@activity(start_to_close="30s", name="mail")
def other_mail() -> None:
    """Has the name of the other one."""


def run(rig: Rig, **fields: Any) -> tuple[Worker, asyncio.Task[None]]:
    worker = Worker(rig.proxy.address, activities=[mail], **fields)
    return worker, asyncio.get_running_loop().create_task(worker.run())


def said(**arguments: object) -> bytes:
    return json.dumps(arguments).encode()


# -- In this process


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_activities_run_and_a_shutdown_ends_the_worker(rig: Rig, mode: str) -> None:
    worker, running = run(rig, mode=mode)
    (task_id,) = await rig.enqueue(input=said(text="hello"), encoding="json")

    assert (await rig.until(task_id, "SUCCEEDED")).output == b'"HELLO"'
    assert worker.is_registered
    assert worker.worker_id
    assert worker.active_count == 0

    await worker.shutdown()
    await running
    assert not worker.is_registered


async def test_a_worker_is_stopped_from_another_thread(rig: Rig) -> None:
    worker, running = run(rig)
    await eventually(lambda: worker.is_registered)

    stopping = threading.Thread(target=lambda: asyncio.run(worker.shutdown("5s")))
    stopping.start()
    await running
    await asyncio.to_thread(stopping.join)


async def test_a_shutdown_with_a_deadline_hands_back_what_does_not_end(rig: Rig) -> None:
    worker, running = run(rig)
    (task_id,) = await rig.enqueue(input=said(text="wait"), encoding="json")
    await rig.until(task_id, "RUNNING")
    assert worker.active_count == 1

    await worker.shutdown("100ms")
    await running

    assert await rig.outcomes(task_id) == ["released"]


async def test_a_cancelled_run_hands_back_and_stays_cancelled(rig: Rig) -> None:
    _, running = run(rig)
    (task_id,) = await rig.enqueue(input=said(text="wait"), encoding="json")
    await rig.until(task_id, "RUNNING")

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await rig.outcomes(task_id) == ["released"]


async def test_the_handlers_of_signals_are_given_back(rig: Rig) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    worker, running = run(rig)
    await eventually(lambda: worker.is_registered)
    assert signal.getsignal(signal.SIGTERM) is not before[0]
    await worker.shutdown()
    await running

    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_what_the_server_refuses_is_raised(rig: Rig) -> None:
    _, running = run(rig, namespace="nobody/knows")

    with pytest.raises(NotFound, match="nobody/knows"):
        await running


async def test_a_worker_runs_once(rig: Rig) -> None:
    worker, running = run(rig)
    await eventually(lambda: worker.is_registered)
    with pytest.raises(RuntimeError, match="can be run once"):
        await worker.run()
    await worker.shutdown()
    await running


async def test_the_probes_tell_their_port(rig: Rig) -> None:
    worker, running = run(rig, health="127.0.0.1:0")
    await eventually(lambda: worker.is_registered)
    assert worker.health_port > 0
    await worker.shutdown()
    await running


async def test_a_worker_that_is_shut_down_before_it_runs_ends_at_once(rig: Rig) -> None:
    worker = Worker(rig.proxy.address, activities=[mail])
    await worker.shutdown()

    await worker.run()
    assert not await rig.workers()


# -- What cannot work is said before anything connects


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"activities": []}, "at least one activity"),
        ({"activities": [mail, other_mail]}, "Two activities are named 'mail'"),
        ({"queue": "no spaces please"}, "queue"),
        ({"max_concurrent": 0}, "max_concurrent must be 1"),
        ({"max_concurrent": 10_001}, "max_concurrent must be 1"),
        ({"mode": "served"}, "mode must be"),
        ({"lease": "soon"}, "lease must be a duration"),
        ({"drain_deadline": 0}, "drain_deadline must be"),
        ({"lease": "1s"}, "lease must be between 10s and 10m, not 1s"),
        ({"lease": "1h"}, "lease must be between 10s and 10m, not 1h"),
        ({"health": "7310"}, "health must be host:port"),
        ({"health": "localhost:99999"}, "health must be host:port"),
        ({"labels": {"": "x"}}, "labels"),
        ({"name": "a b"}, "name"),
        ({"namespace": "a/b/c"}, "namespace"),
        ({"target": "http://localhost:7300"}, "is a URL"),
    ],
)
def test_bad_settings_are_refused(fields: dict[str, Any], message: str) -> None:
    values = {"target": "127.0.0.1:7301", "activities": [mail], **fields}

    with pytest.raises(ValueError, match=message):
        Worker(values.pop("target"), **values)


def test_what_is_no_activity_is_refused() -> None:
    with pytest.raises(TypeError, match="is not an activity"):
        Worker(activities=[len])


# -- As a process


async def start(rig: Rig, path: Path, *names: str, lease: str = "10s") -> Process:
    program = ("-m", "tests.sdk.worker.program", rig.proxy.address, lease, *names)
    return await Process.spawn(program, path / "worker.log")


async def test_the_first_signal_drains_and_the_exit_code_is_zero(rig: Rig, tmp_path: Path) -> None:
    process = await start(rig, tmp_path)
    (task_id,) = await rig.enqueue(input=said(seconds=1.5), encoding="json")
    await rig.until(task_id, "RUNNING")

    assert await process.stop() == 0

    assert (await rig.until(task_id, "SUCCEEDED")).output == b'"done"'
    assert await rig.outcomes(task_id) == ["succeeded"]


async def test_the_second_signal_hands_back(rig: Rig, tmp_path: Path) -> None:
    process = await start(rig, tmp_path)
    (task_id,) = await rig.enqueue(input=said(seconds=50), encoding="json")
    await rig.until(task_id, "RUNNING")
    (worker,) = await rig.workers()

    async def is_draining() -> bool:
        return (await rig.worker(worker.worker_id)).drain_deadline_at_ms > 0

    process.signal(signal.SIGINT)
    await eventually(is_draining)
    process.signal(signal.SIGTERM)

    assert await process.wait() == 0
    assert await rig.outcomes(task_id) == ["released"]
    assert (await rig.task(task_id)).interruption_count == 0


async def test_a_signal_that_a_launcher_doubles_is_one_request(rig: Rig, tmp_path: Path) -> None:
    process = await start(rig, tmp_path)
    (task_id,) = await rig.enqueue(input=said(seconds=2), encoding="json")
    await rig.until(task_id, "RUNNING")

    process.signal(signal.SIGTERM)
    process.signal(signal.SIGTERM)

    assert await process.wait() == 0
    assert await rig.outcomes(task_id) == ["succeeded"]


async def test_a_signal_drains_while_the_event_loop_is_blocked(rig: Rig, tmp_path: Path) -> None:
    process = await start(rig, tmp_path)
    (task_id,) = await rig.enqueue(input=said(blocks=4), encoding="json")
    await rig.until(task_id, "RUNNING")
    (worker,) = await rig.workers()

    process.signal(signal.SIGTERM)

    async def is_draining() -> bool:
        return (await rig.worker(worker.worker_id)).drain_deadline_at_ms > 0

    await eventually(is_draining)
    # Nobody waited for the loop.
    assert (await rig.task(task_id)).state != TASK_STATE_SUCCEEDED
    assert await process.wait() == 0
    await rig.until(task_id, "SUCCEEDED")
    log = await asyncio.to_thread((tmp_path / "worker.log").read_text)
    assert "event loop is blocked" in log


async def test_a_superseded_worker_ends_with_an_error(rig: Rig, tmp_path: Path) -> None:
    process = await start(rig, tmp_path, "mailer")

    async def is_there() -> bool:
        return len(await rig.workers()) == 1

    await eventually(is_there)
    _, running = run(rig, name="mailer")

    assert await process.wait() == 1
    log = await asyncio.to_thread((tmp_path / "worker.log").read_text)
    assert "was superseded" in log
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_lease_that_the_server_does_not_grant_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_rig(tmp_path, lease_most_ms=20_000) as rig:
        worker, running = run(rig, lease="1m")
        await eventually(lambda: worker.is_registered)
        await worker.shutdown()
        await running
    said = [each for each in messages(caplog) if "lease" in each]
    assert said == ["This worker asked for a lease of 1m, but the server granted 20s."]


async def test_a_process_that_stood_still_for_longer_than_its_lease_starts_afresh(
    tmp_path: Path,
) -> None:
    async with open_rig(tmp_path, session_lease_ms=4_000) as rig:
        await stand_still_for_longer_than_the_lease(rig, tmp_path)


async def stand_still_for_longer_than_the_lease(rig: Rig, tmp_path: Path) -> None:
    process = await start(rig, tmp_path, lease="")
    (task_id,) = await rig.enqueue(input=said(seconds=30), encoding="json")
    await rig.until(task_id, "RUNNING")
    (before,) = await rig.workers()

    process.pause()
    await rig.until(task_id, "PENDING")
    process.go_on()

    await rig.until(task_id, "RUNNING")
    task = await rig.task(task_id)
    assert task.attempt == 2
    assert task.worker_id != before.worker_id
    process.signal(signal.SIGTERM)
    process.signal(signal.SIGINT)
    assert await process.wait() == 0
    assert await rig.outcomes(task_id) == ["worker_lost", "released"]


async def test_a_process_that_stood_still_for_less_than_its_lease_goes_on(
    rig: Rig, tmp_path: Path
) -> None:
    process = await start(rig, tmp_path, lease="60s")
    (task_id,) = await rig.enqueue(input=said(seconds=2), encoding="json")
    await rig.until(task_id, "RUNNING")

    process.pause()
    # The server goes on serving others meanwhile.
    other, running = run(rig, queue="other")
    await eventually(lambda: other.is_registered)
    await other.shutdown()
    await running
    process.go_on()

    await rig.until(task_id, "SUCCEEDED")
    assert await rig.outcomes(task_id) == ["succeeded"]
    assert await process.stop() == 0
