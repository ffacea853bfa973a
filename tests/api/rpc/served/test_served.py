"""Served workers over gRPC: a real server and a worker that knows only the generated code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_status import rpc_status

from tenure.api.server import Server
from tenure.api.setting import Address, ServerSettings
from tenure.core.address import AllowList
from tenure.engine.clock import SystemClock
from tenure.engine.settings import Settings
from tenure.store.location import make_store
from tenure.v1 import error_pb2, task_pb2, worker_pb2
from tenure.v1 import task_service_pb2 as t
from tenure.v1 import worker_service_pb2 as pb
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.worker_service_pb2_grpc import WorkerServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import ANSWER_S
from tests.polling import eventually
from tests.wire.served_host import ServedHost, ServedWorker, succeeded

OPTIONS = task_pb2.TaskOptions(start_to_close_ms=600_000)


class Stage:
    """A server, a host for workers, and a client."""

    def __init__(self, server: Server, host: ServedHost, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.host = host
        self.target = str(server.grpc_address)
        self.tasks = TaskServiceStub(channel)
        self.workflows = WorkflowServiceStub(channel)

    async def enqueue(self, count: int, type_: str = "a", size: int = 1) -> list[str]:
        answer = await self.tasks.EnqueueTasks(
            t.EnqueueTasksRequest(
                tasks=[
                    task_pb2.NewTask(type=type_, task_queue="q", input=b"x" * size, options=OPTIONS)
                    for _ in range(count)
                ]
            )
        )
        return [each.task_id for each in answer.results]

    async def state(self, task_id: str) -> str:
        answer = await self.tasks.GetTask(t.GetTaskRequest(task_id=task_id))
        return task_pb2.TaskState.Name(answer.task.state).removeprefix("TASK_STATE_")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    clock = SystemClock()
    store = make_store(f"sqlite:///{tmp_path}/served.db", clock=clock.now_ms)
    settings = ServerSettings(http=Address("127.0.0.1", 0), grpc=Address("127.0.0.1", 0))
    engine_settings = Settings(
        served_tick_ms=200, served_call_ms=1_000, served_call_gap_ms=20, seat_round_ms=50
    )
    server = Server(store, settings, clock=clock, engine_settings=engine_settings)
    await server.start()
    host = ServedHost()
    await host.start()
    async with grpc.aio.insecure_channel(str(server.grpc_address)) as channel:
        yield Stage(server, host, channel)
    await server.stop()
    await host.stop()


def detail(error: grpc.aio.AioRpcError) -> error_pb2.ErrorDetail:
    found = error_pb2.ErrorDetail()
    status = rpc_status.from_call(error)
    assert status is not None
    assert status.details[0].Unpack(found)
    return found


async def test_a_served_worker_runs_tasks_and_each_once(stage: Stage) -> None:
    worker = await stage.host.add(ServedWorker("q", ("a",)), stage.target)
    ids = await stage.enqueue(50)
    await eventually(lambda: len(worker.acks) == len(ids), "a call", within_s=ANSWER_S)
    assert {await stage.state(each) for each in ids} == {"SUCCEEDED"}
    assert set(worker.begun.values()) == {1}


async def test_the_answer_to_a_registration_has_the_tick_the_lease_and_the_secret(
    stage: Stage,
) -> None:
    worker = ServedWorker("q", ("a",))
    answer = await worker.register(stage.target, stage.host.address)
    assert (answer.heartbeat_interval_ms, answer.lease_duration.seconds) == (200, 60)
    assert answer.call_secret
    assert answer.token == ""
    again = await worker.register(stage.target, stage.host.address)
    assert (again.worker_id, again.call_secret) == (answer.worker_id, answer.call_secret)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await worker.register(stage.target, "127.0.0.1:1")
    assert (detail(refused.value).code, detail(refused.value).field) == (
        "already_exists",
        "address",
    )


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:70000",
        "10.0.0.1:7310",
        "http://127.0.0.1:1",
        "::1:1",
    ],
)
async def test_an_address_that_is_malformed_or_elsewhere_is_refused(
    stage: Stage, address: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ServedWorker("q", ("a",)).register(stage.target, address)
    told = detail(refused.value)
    assert (told.code, told.field) == ("invalid_argument", "address")


async def test_an_address_in_another_mode_is_refused(stage: Stage) -> None:
    request = w.RegisterWorkerRequest(
        task_queue="q", workflow_types=["a"], address=stage.host.address
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stage.workflows.RegisterWorker(request)
    assert detail(refused.value).field == "address"


async def test_an_operator_may_allow_other_addresses() -> None:
    allowed = AllowList.parse(["10.0.0.0/8", "worker.test"], "served-allow")
    assert allowed.networks
    assert allowed.hosts == {"worker.test"}


async def test_polls_and_heartbeats_of_a_served_worker_are_refused(stage: Stage) -> None:
    worker = await stage.host.add(ServedWorker("q", ("a",)), stage.target)
    poll = w.PollActivityRequest(
        worker_id=worker.worker_id, task_queue="q", supported_workflow_types=["a"]
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stage.workflows.PollActivity(poll)
    assert detail(refused.value).code == "wrong_state"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stage.workflows.WorkerHeartbeat(w.WorkerHeartbeatRequest(worker_id=worker.worker_id))
    assert detail(refused.value).code == "wrong_state"


async def test_frames_stay_below_a_mebibyte_and_the_rest_follows(stage: Stage) -> None:
    worker = ServedWorker("q", ("a",))
    worker.work = _large
    await stage.host.add(worker, stage.target)
    ids = await stage.enqueue(12, size=300_000)
    await eventually(lambda: len(worker.acks) == len(ids), "a call", within_s=ANSWER_S)
    assert max(each.ByteSize() for each in worker.calls) < 2**20


async def _large(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    return succeeded(task, b"y" * 300_000)


async def test_a_new_worker_at_the_address_of_a_dead_one_gets_nothing_of_its_work(
    stage: Stage,
) -> None:
    waiting = asyncio.Event()

    async def wait(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
        await waiting.wait()
        return succeeded(task)

    dead = await stage.host.add(ServedWorker("q", ("a",), wait), stage.target)
    (task_id,) = await stage.enqueue(1)
    await eventually(lambda: len(dead.running) == 1, "a call", within_s=ANSWER_S)
    del stage.host.workers[dead.worker_id]
    successor = await stage.host.add(ServedWorker("q", ("b",)), stage.target)
    await eventually(lambda: len(successor.calls) > 2, "a call", within_s=ANSWER_S)
    assert not successor.begun
    assert not successor.kills
    assert await stage.state(task_id) == "RUNNING"
    assert "unauthenticated" in stage.host.refused
    view = await stage.workflows.GetWorker(w.GetWorkerRequest(worker_id=dead.worker_id))
    assert view.worker.health == worker_pb2.WORKER_HEALTH_LATE
    waiting.set()


async def test_a_call_without_the_secret_is_refused_by_the_worker(stage: Stage) -> None:
    worker = await stage.host.add(ServedWorker("q", ("a",)), stage.target)
    async with grpc.aio.insecure_channel(stage.host.address) as channel:
        stub = WorkerServiceStub(channel)
        for metadata in ((), (("authorization", "Bearer wrong"),)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Heartbeat(
                    pb.HeartbeatRequest(worker_id=worker.worker_id, session_no=10**6),
                    metadata=metadata,
                )
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_the_seat_is_shown(stage: Stage) -> None:
    worker = await stage.host.add(ServedWorker("q", ("a",)), stage.target)
    await eventually(lambda: len(worker.calls) > 2, "a call", within_s=ANSWER_S)
    shown = (await stage.workflows.GetWorker(w.GetWorkerRequest(worker_id=worker.worker_id))).worker
    assert shown.address == stage.host.address
    assert shown.seat.server_id == stage.server.engine.server_id
    assert shown.mode == worker_pb2.WORKER_MODE_SERVED
    assert shown.session_no == 1


async def test_an_evicted_worker_is_told_the_end(stage: Stage) -> None:
    worker = await stage.host.add(ServedWorker("q", ("a",)), stage.target)
    await eventually(lambda: len(worker.calls) > 1, "a call", within_s=ANSWER_S)
    await stage.workflows.DeregisterWorker(w.DeregisterWorkerRequest(worker_id=worker.worker_id))
    await eventually(lambda: worker.is_over, "a call", within_s=ANSWER_S)
    assert worker.calls[-1].end.error.reason == "deregistered"


async def test_a_draining_worker_is_told_until_when(stage: Stage) -> None:
    worker = await stage.host.add(ServedWorker("q", ("a",)), stage.target)
    await eventually(lambda: len(worker.calls) > 1, "a call", within_s=ANSWER_S)
    await stage.workflows.DeregisterWorker(
        w.DeregisterWorkerRequest(worker_id=worker.worker_id, drain=True)
    )
    await eventually(lambda: worker.calls[-1].HasField("drain"), "a call", within_s=ANSWER_S)
    assert 0 < worker.calls[-1].drain.deadline_in_ms <= 300_000
