"""Waiting has a limit if one is given, and says why a task does not run when that takes long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tenure import Client, SyncClient, activity
from tenure.sdk.client import stalled_wait
from tests.polling import eventually
from tests.sdk.client.stage import RawWorker, ServerStage, double, hold


@activity(start_to_close="10m", name="untyped")
def patient(timeout: int) -> None:
    """Has a parameter of this name itself."""


@pytest.fixture
async def holder(stage: ServerStage) -> AsyncIterator[RawWorker]:
    async with RawWorker(stage.target, hold) as made:
        yield made


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "tenure.client"]


async def test_a_run_has_a_timeout_and_its_task_goes_on(client: Client, holder: RawWorker) -> None:
    with pytest.raises(
        TimeoutError, match=r"not ended within 0.2 s. The task goes on.*explain"
    ) as caught:
        await client.run(double, 1, timeout="200ms")
    (task_id,) = await holder.holds(1)
    assert task_id in str(caught.value)
    assert (await client.handle(task_id).describe()).finished_at is None


@pytest.mark.usefixtures("worker")
async def test_a_run_within_its_timeout_has_its_result(client: Client, stage: ServerStage) -> None:
    assert await client.run(double, 21, timeout="1m") == 42
    assert await client.run(double, number=21, timeout=60) == 42
    with SyncClient(stage.target) as sync_client:
        assert await asyncio.to_thread(sync_client.run, double, 4, timeout="1m") == 8
    with pytest.raises(TypeError, match="parameter number must be int"):
        await client.run(double, "x", timeout="1m")
    with pytest.raises(ValueError, match="timeout must be"):
        await client.run(double, 1, timeout="soon")


@pytest.mark.usefixtures("worker")
async def test_a_parameter_of_the_activity_that_is_named_timeout_stays_its_own(
    client: Client,
) -> None:
    await client.run(patient, timeout=3)
    with pytest.raises(TypeError, match="parameter timeout must be int, not str"):
        await client.run(patient, timeout="3s")


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stalled_wait.STALLED_S == 5.0
    monkeypatch.setattr(stalled_wait, "STALLED_S", 0.05)
    monkeypatch.setattr(stalled_wait, "LOOK_S", 0.02)


@pytest.mark.usefixtures("_soon")
async def test_a_wait_for_a_task_that_no_worker_can_take_says_the_first_reason(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await client.enqueue(double, 1)
    waits = [asyncio.ensure_future(handle.result()) for _ in range(3)]
    running = asyncio.ensure_future(client.run(double, 2))
    reason = (await handle.explain()).reasons[0]
    await eventually(lambda: told(caplog))
    (line,) = told(caplog)
    assert caplog.records[-1].levelno == logging.WARNING
    assert line.startswith(f"Waiting for task {handle.task_id}, which does not run. no_worker: ")
    assert reason.message in line
    assert reason.advice in line
    for each in (*waits, running):
        each.cancel()
    await asyncio.gather(*waits, running, return_exceptions=True)


@pytest.mark.usefixtures("_soon")
async def test_a_wait_for_a_task_that_runs_says_nothing(
    client: Client, holder: RawWorker, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = asyncio.ensure_future(client.run(double, 1))
    await holder.holds(1)
    other = await client.enqueue_named("nobody", start_to_close="1m")
    other_waiting = asyncio.ensure_future(other.result())
    # The other one is told, and so the first had its turn before.
    await eventually(lambda: told(caplog))
    assert all(other.task_id in line for line in told(caplog))
    for each in (waiting, other_waiting):
        each.cancel()
    await asyncio.gather(waiting, other_waiting, return_exceptions=True)
