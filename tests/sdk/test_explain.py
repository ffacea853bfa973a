"""``handle.explain()`` in each of its cases, with a real server, real workers and a real client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from tenure import Client, Handle, RetryPolicy, SyncClient, Worker, activity
from tenure.core.task.record import TaskState
from tenure.errors import NotFound
from tenure.sdk.client import ExplainedReason
from tenure.testing import TestEngine, open_engine
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import worker_pb2
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub
from tests.polling import eventually
from tests.sdk.guideline.scene import until_state
from tests.sdk.worker.rig import Rig, open_rig
from tests.wire.relay import Relay

LEAVE = threading.Event()


@activity(start_to_close="1h", retry=RetryPolicy(initial_interval="1m", max_attempts=3))
async def mail(text: str = "") -> str:
    if text == "wait":
        await asyncio.Event().wait()
    if text == "fail":
        raise ValueError("no such address")
    return text


@activity(start_to_close="1h")
async def mails() -> None:
    """Has nearly the name of the other one."""


@activity(start_to_close="1h", cancel_grace="1h")
def stay() -> None:
    """Does not end when it is told to."""
    activity.progress(1, "stays")
    LEAVE.wait(30)


@activity(start_to_close="1h", completes_later=True)
async def approve() -> str:
    activity.complete_later()


@pytest.fixture(autouse=True)
def _leave() -> Iterator[None]:
    LEAVE.clear()
    yield
    LEAVE.set()


@pytest.fixture
async def engine() -> AsyncIterator[TestEngine]:
    async with open_engine(patience="200ms") as made:
        yield made


@pytest.fixture
async def fast(tmp_path: Path) -> AsyncIterator[Rig]:
    """A server in real time, at which workers beat twice a second."""
    async with open_rig(tmp_path, session_lease_ms=1_500, poll_lease_ms=1_500) as made:
        yield made


@pytest.fixture
async def client(engine: TestEngine) -> AsyncIterator[Client]:
    async with engine.client() as made:
        yield made


@pytest.fixture
async def admin(engine: TestEngine) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(engine.target) as channel:
        yield AdminServiceStub(channel)


async def codes(handle: Handle[Any]) -> list[str]:
    return [each.code for each in (await handle.explain()).reasons]


async def first(handle: Handle[Any]) -> ExplainedReason:
    return (await handle.explain()).reasons[0]


async def until_code(handle: Handle[Any], code: str) -> ExplainedReason:
    """Wait until the first reason has a code: what workers do takes a moment to arrive."""

    async def is_there() -> bool:
        return (await first(handle)).code == code

    await eventually(is_there, f"the reason {code}", every_s=0.05)
    return await first(handle)


@contextlib.asynccontextmanager
async def busy(engine: TestEngine, client: Client, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker whose one slot is taken."""
    options = {"name": "alice", "max_concurrent": 1, **options}
    async with engine.worker([mail], **options) as worker:
        await until_state(await client.enqueue(mail, "wait"), TaskState.RUNNING)
        yield worker


# -- Workers


async def test_no_worker_at_all(client: Client) -> None:
    handle = await client.enqueue(mail)
    found = await handle.explain()
    assert (found.task_id, found.state) == (handle.task_id, TaskState.PENDING)
    assert [each.code for each in found.reasons] == ["no_worker"]
    assert found.reasons[0].advice == "Start a worker: tenure worker MODULE --queue default"
    assert str(found).splitlines()[1].startswith("no_worker: No worker serves queue default.")


async def test_the_last_worker_has_left(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mail], name="alice"):
        pass
    reason = await first(await client.enqueue(mail))
    assert reason.code == "no_worker"
    assert (reason.evidence["lastWorker"], reason.evidence["lastEndReason"]) == (
        "alice",
        "deregistered",
    )


async def test_workers_that_offer_another_type(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mails], name="alice"), engine.worker([mail], queue="slow"):
        reason = await first(await client.enqueue(mail))
    assert reason.code == "no_worker_for_type"
    assert reason.evidence["workers"] == "alice (default)"
    assert reason.evidence["offered"] == "mails"
    assert reason.evidence["similar"] == "mails"
    assert "mail is offered on queue slow" in reason.message


async def test_all_workers_drain(engine: TestEngine, client: Client, admin: Any) -> None:
    async with busy(engine, client) as worker:
        await admin.DrainWorker(admin_pb.DrainWorkerRequest(worker_id=worker.worker_id))
        reason = await until_code(await client.enqueue(mail), "all_draining")
    assert reason.evidence["drainingCount"] == "1"


async def test_all_workers_are_full(engine: TestEngine, client: Client) -> None:
    async with busy(engine, client):
        handle = await client.enqueue(mail)
        later = await client.enqueue(mail)
        reason = await first(handle)
        assert await codes(later) == ["workers_busy", "work_ahead"]
    assert reason.code == "workers_busy"
    assert reason.evidence["workers"] == "alice (1 of 1 slot in use)"


async def test_the_only_worker_was_cut_off(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mail]) as worker:
        await client.run(mail)
        async with engine.partition(worker):
            # It is sent to the worker, which does not hear of it.
            sent = await client.enqueue(mail)
            await engine.advance("11s")
            reason = await until_code(await client.enqueue(mail), "workers_unhealthy")
            assert (await first(sent)).evidence["workerHealth"] == "late"
    assert reason.evidence["late"] == "1"


async def test_the_only_worker_has_just_died(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mail]) as worker:
        await client.run(mail)
        await engine.kill_worker(worker)
        reason = await until_code(await client.enqueue(mail), "workers_unhealthy")
    assert reason.evidence["suspect"] == "1"


async def test_the_only_worker_has_a_thread_that_does_not_end(fast: Rig) -> None:
    async with Client(fast.proxy.address) as client, working(fast, stay, mail, max_concurrent=1):
        handle = await client.enqueue(stay.with_options(cancel_grace="100ms"))
        await until_state(handle, TaskState.RUNNING)
        await handle.cancel()
        await eventually(lambda: is_stuck(fast))
        reason = await until_code(await client.enqueue(mail), "workers_unhealthy")
        LEAVE.set()
    assert reason.evidence["stuck"] == "1"


async def is_stuck(rig: Rig) -> bool:
    return [each.health for each in await rig.workers()] == [worker_pb2.WORKER_HEALTH_STUCK]


async def test_the_only_worker_is_deaf(fast: Rig) -> None:
    # Its heartbeats arrive and its polls do not.
    options = {"name": "alice", "mode": "poll", "max_concurrent": 2}
    async with (
        Client(fast.proxy.address) as client,
        Relay(fast.proxy.target, kept="PollActivity") as relay,
        working(fast, mail, target=relay.address, **options) as worker,
    ):
        await eventually(lambda: relay.kept_count)
        handle = await client.enqueue(mail, "hello")
        reason = await until_code(handle, "workers_unhealthy")
        seen = await fast.worker(worker.worker_id)
        relay.pass_all()
        assert await handle.result() == "hello"
    assert seen.health == worker_pb2.WORKER_HEALTH_DEAF
    assert reason.message == (
        "The only worker that could run it is unhealthy: 1 deaf (it is alive but requests no work)."
    )
    assert reason.advice.startswith("Restart it, and check its log for what it waits for.")
    assert reason.evidence["deaf"] == "1"
    assert reason.evidence["workers"] == "alice (0 of 2 slots in use)"


async def test_the_only_worker_has_a_blocked_loop(fast: Rig) -> None:
    blocked = threading.Thread(target=lambda: asyncio.run(run_blocked(fast.proxy.address)))
    blocked.start()
    async with Client(fast.proxy.address) as client:
        await until_state(await client.enqueue(block), TaskState.RUNNING)
        reason = await until_code(await client.enqueue(mail), "workers_unhealthy")
        LEAVE.set()
    await asyncio.to_thread(blocked.join)
    assert reason.evidence["blocked"] == "1"


@activity(start_to_close="1h")
async def block() -> None:
    """Blocks the loop that it runs on."""
    LEAVE.wait(30)


async def run_blocked(target: str) -> None:
    worker = Worker(target, activities=[block, mail], max_concurrent=1)
    running = asyncio.ensure_future(worker.run(handle_signals=False))
    await asyncio.to_thread(LEAVE.wait, 30)
    await worker.shutdown("1s")
    await running


@contextlib.asynccontextmanager
async def working(
    rig: Rig, *activities: object, target: str = "", **options: Any
) -> AsyncIterator[Worker]:
    worker = Worker(target or rig.proxy.address, activities=activities, **options)
    running = asyncio.ensure_future(worker.run(handle_signals=False))
    try:
        yield worker
    finally:
        await worker.shutdown("1s")
        await running


# -- The queue and the line


async def test_the_queue_is_paused(engine: TestEngine, client: Client, admin: Any) -> None:
    await admin.SetQueue(admin_pb.SetQueueRequest(name="default", is_paused=True))
    async with engine.worker([mail]):
        handle = await client.enqueue(mail)
        assert await codes(handle) == ["queue_paused"]
        assert (await first(handle)).advice.endswith("tenure queues resume default")
        await admin.SetQueue(admin_pb.SetQueueRequest(name="default", is_paused=False))
        await handle.result()


async def test_the_queue_is_at_its_limit(engine: TestEngine, client: Client, admin: Any) -> None:
    await admin.SetQueue(admin_pb.SetQueueRequest(name="default", concurrency_max=1))
    async with engine.worker([mail], name="alice"):
        held = await client.enqueue(mail, "wait")
        await until_state(held, TaskState.RUNNING)
        handle = await client.enqueue(mail)
        assert await codes(handle) == ["queue_full"]
        reason = await first(handle)
    assert (reason.evidence["limit"], reason.evidence["heldCount"]) == ("1", "1")
    assert reason.evidence["held"].startswith(f"{held.task_id} (mail, by alice since ")


async def test_the_namespace_is_disabled(engine: TestEngine, admin: Any) -> None:
    await engine.create_namespace("acme")
    async with engine.client(namespace="acme") as client, engine.worker([mail], namespace="acme"):
        await client.run(mail)
        handle = await client.enqueue(mail.with_options(delay="1h"))
        await admin.SetNamespace(admin_pb.SetNamespaceRequest(name="acme", is_disabled=True))
        assert await codes(handle) == ["namespace_disabled", "not_before"]
        advice = (await first(handle)).advice
    assert advice == "Enable it: tenure namespaces enable acme/default"


async def test_work_stands_before_it(client: Client) -> None:
    await client.enqueue(mail)
    handle = await client.enqueue(mail)
    urgent = await client.enqueue(mail.with_options(priority=0))
    assert await codes(handle) == ["no_worker", "work_ahead"]
    assert (await handle.explain()).reasons[1].evidence["aheadCount"] == "2"
    assert await codes(urgent) == ["no_worker"]


# -- Time


async def test_it_is_for_later(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mail]):
        handle = await client.enqueue(mail.with_options(delay="3d"), "hello")
        assert await codes(handle) == ["not_before"]
        expected = engine.now() + timedelta(days=3)
        assert (await first(handle)).evidence["runAt"][:10] == f"{expected:%Y-%m-%d}"
        await engine.advance("3d")
        assert await handle.result() == "hello"


async def test_it_backs_off_after_an_error(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mail]):
        handle = await client.enqueue(mail, "fail")
        reason = await until_code(handle, "backing_off")
        assert await codes(handle) == ["backing_off"]
    assert reason.message.startswith("Attempt 1 of 3 ended with ValueError: no such address;")
    assert (reason.evidence["failureCount"], reason.evidence["maximumAttempts"]) == ("1", "3")
    assert "nextAttemptAt" in reason.evidence


async def test_it_is_suspected_of_crashing_workers(engine: TestEngine, client: Client) -> None:
    handle = await client.enqueue(mail, "wait")
    lost = []
    for _ in range(2):
        async with engine.worker([mail]) as worker:
            await until_state(handle, TaskState.RUNNING)
            lost.append(worker.worker_id)
            await engine.kill_worker(worker)
            await engine.advance("3s")
            await until_state(handle, TaskState.PENDING)
    reason = await first(handle)
    assert reason.code == "crash_guard"
    assert reason.evidence["lossCount"] == "2"
    assert reason.evidence["lostWorkers"] == ", ".join(lost)


# -- States


async def test_it_is_paused(engine: TestEngine, client: Client) -> None:
    handle = await client.enqueue(mail)
    await handle.pause()
    async with engine.worker([mail]):
        assert await codes(handle) == ["task_paused"]
        assert (await first(handle)).advice.endswith(f"tenure tasks resume {handle.task_id}")
        await handle.resume()
        await handle.result()


async def test_it_waits_for_its_completion_from_outside(engine: TestEngine, client: Client) -> None:
    async with engine.worker([approve]):
        handle = await client.enqueue(approve)
        reason = await until_code(handle, "waiting")
        assert reason.evidence["for"] == "completion"
        assert {"since", "startToCloseAt"} <= reason.evidence.keys()


async def test_it_is_running(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mail], name="alice") as worker:
        handle = await client.enqueue(mail, "wait")
        await until_state(handle, TaskState.RUNNING)
        reason = await first(handle)
        assert reason.evidence["worker"] == worker.worker_id
    assert reason.code == "held"
    assert reason.message.startswith("It is running: worker alice got attempt 1 at ")
    assert reason.evidence["workerHealth"] == "healthy"
    assert "startToCloseAt" in reason.evidence


async def test_it_is_being_cancelled(engine: TestEngine, client: Client) -> None:
    async with engine.worker([stay], name="alice"):
        handle = await client.enqueue(stay)
        await until_state(handle, TaskState.RUNNING)
        await handle.cancel("no longer needed")
        reason = await first(handle)
        LEAVE.set()
    assert reason.code == "cancelling"
    assert "worker alice" in reason.message
    assert "no longer needed" in reason.message


async def test_it_has_ended(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mail]):
        handle = await client.enqueue(mail)
        await handle.result()
    found = await handle.explain()
    assert found.state is TaskState.SUCCEEDED
    assert [each.code for each in found.reasons] == ["finished"]


async def test_nothing_is_in_its_way(engine: TestEngine, client: Client) -> None:
    async with engine.worker([mail], mode="poll") as worker:
        # It lives by its lease, and has no poll that waits.
        await engine.kill_worker(worker)
        reason = await until_code(await client.enqueue(mail), "next")
    assert reason.evidence == {"queue": "default", "type": "mail"}


# -- Who asks


async def test_an_unknown_task_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound):
        await client.handle("019b0000-0000-7000-8000-ffffffffffff").explain()


async def test_the_synchronous_client_explains_too(engine: TestEngine) -> None:
    def ask() -> list[str]:
        with SyncClient(engine.target) as client:
            return [each.code for each in client.enqueue(mail).explain().reasons]

    assert await asyncio.to_thread(ask) == ["no_worker"]
