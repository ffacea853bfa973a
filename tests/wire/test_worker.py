"""The worker of the scenes does what design section 5 asks of a worker."""

from __future__ import annotations

import signal
import time

import pytest

from tenure.v1.task_pb2 import TASK_STATE_CANCELLED, TASK_STATE_SUCCEEDED
from tenure.v1.worker_pb2 import WORKER_STATUS_OFFLINE
from tests.polling import eventually
from tests.soak.scene import SHORT
from tests.wire.client import make_task
from tests.wire.stage import Stage, open_stage
from tests.wire.worker import EXIT_NOT_WANTED
from tests.wire.worker_heartbeat import HeartbeatChain, now_s

SECONDS = 30.0
MODES = ("session", "poll")


@pytest.mark.parametrize("mode", MODES)
async def test_a_worker_that_is_not_wanted_any_more_ends_with_a_message(mode: str) -> None:
    async with open_stage("sqlite", SHORT) as stage:
        server = await stage.server()
        client = await stage.client(server.grpc)
        worker = await stage.worker(server.grpc, mode=mode)
        await client.evict(worker.worker_id)
        assert await worker.process.wait(SECONDS) == EXIT_NOT_WANTED
        assert worker.tail.of("over")[-1].text == "evicted"


@pytest.mark.parametrize("mode", MODES)
async def test_the_first_sigterm_drains_and_the_second_hands_back(mode: str) -> None:
    async with open_stage("sqlite", SHORT) as stage:
        server = await stage.server()
        client = await stage.client(server.grpc)
        worker = await stage.worker(server.grpc, mode=mode)
        ids = await client.enqueue([make_task([600_000, 0]), make_task([500, 0])])
        await eventually(
            lambda: len(worker.tail.of("start")) == 2, "the start of both", within_s=SECONDS
        )
        worker.process.signal(signal.SIGTERM)
        await eventually(lambda: bool(worker.tail.of("draining")), "the drain", within_s=SECONDS)
        await client.wait_all(ids[1:], SECONDS)
        worker.process.signal(signal.SIGTERM)
        assert await worker.process.wait(SECONDS) == 0
        assert (await client.worker(worker.worker_id)).status == WORKER_STATUS_OFFLINE
        await stage.worker(server.grpc, mode=mode)
        results = await client.wait_all(ids, SECONDS)
        assert [results[each].attempt for each in ids] == [2, 1]
        assert {each.state for each in results.values()} == {TASK_STATE_SUCCEEDED}
        assert (await client.get(ids[0])).interruption_count == 0


def test_the_answer_to_a_heartbeat_that_was_given_up_renews_nothing() -> None:
    heartbeat = HeartbeatChain()
    heartbeat.begin("first", lease_ms=60_000, interval_ms=1_000, sent_at_s=now_s())
    heartbeat.accepted("second", lease_ms=60_000, interval_ms=1_000)
    assert heartbeat.token == "first"


async def test_a_cancelled_task_is_told_within_a_second() -> None:
    async with open_stage("sqlite") as stage:
        assert await _cancel(stage) < 1.0 * 3


async def _cancel(stage: Stage) -> float:
    """Cancel a running task; return how long its worker did not know."""
    server = await stage.server()
    client = await stage.client(server.grpc)
    worker = await stage.worker(server.grpc)
    ids = await client.enqueue([make_task(600_000)])
    await eventually(lambda: bool(worker.tail.of("start")), "the start", within_s=SECONDS)
    began_s = worker.tail.of("start")[0].mono_s
    # Once it is confirmed only its worker can end it.
    await eventually(lambda: time.monotonic() > began_s + 1.0, "the confirmation", within_s=SECONDS)
    asked_at_s = time.monotonic()
    await client.cancel(ids[0])
    results = await client.wait_all(ids, SECONDS)
    assert results[ids[0]].state == TASK_STATE_CANCELLED
    return worker.tail.of("cancelled")[0].mono_s - asked_at_s
