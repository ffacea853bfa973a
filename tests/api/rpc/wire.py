"""A client of the gRPC edge with shorthands, and a worker's end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc_status import rpc_status

from tenure.api.guard.rate_limit import Allowance
from tenure.api.readiness import Readiness
from tenure.api.rpc.server import RpcServer
from tenure.api.setting import Address, ServerSettings
from tenure.engine.engine import Engine
from tenure.v1 import (
    admin_service_pb2_grpc,
    error_pb2,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
    worker_pb2,
    workflow_service_pb2_grpc,
)
from tenure.v1 import session_service_pb2 as session_pb
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, QUEUE
from tests.polling import eventually
from tests.secret_scan import CANARY

T = TypeVar("T")
OPTIONS: Final = task_pb2.TaskOptions(start_to_close_ms=600_000)


class Wire:
    """The four services over one real connection."""

    def __init__(self, channel: grpc.aio.Channel, address: Address, server: RpcServer) -> None:
        self.channel = channel
        self.address = address
        self.server = server
        # The stubs of gRPC know an asynchronous channel only by their types.
        self.tasks: Any = task_service_pb2_grpc.TaskServiceStub(channel)
        self.workflows: Any = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        self.sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        self.admin: Any = admin_service_pb2_grpc.AdminServiceStub(channel)

    def new(self, type: str = "mail", **fields: Any) -> task_pb2.NewTask:
        return task_pb2.NewTask(
            **{
                "type": type,
                "task_queue": QUEUE,
                "options": OPTIONS,
                # No log of any test may show it.
                "input": CANARY.encode(),
                **fields,
            }
        )

    async def enqueue(self, *tasks: task_pb2.NewTask, **fields: Any) -> list[str]:
        request = task_pb.EnqueueTasksRequest(
            namespace_id=NAMESPACE, tasks=tasks or [self.new()], **fields
        )
        answer = await self.tasks.EnqueueTasks(request)
        return [each.task_id for each in answer.results]

    async def get(self, task_id: str) -> task_pb2.Task:
        request = task_pb.GetTaskRequest(namespace_id=NAMESPACE, task_id=task_id)
        answer = await self.tasks.GetTask(request)
        return cast("task_pb2.Task", answer.task)

    async def state(self, task_id: str) -> str:
        return state_name((await self.get(task_id)).state)

    async def until_state(self, task_id: str, state: str) -> None:
        async def is_there() -> bool:
            return await self.state(task_id) == state

        await eventually(is_there)

    async def register(self, *types: str, **fields: Any) -> workflow_pb.RegisterWorkerResponse:
        request = workflow_pb.RegisterWorkerRequest(
            **{
                "namespace_id": NAMESPACE,
                "task_queue": QUEUE,
                "workflow_types": types or ["mail"],
                **fields,
            }
        )
        answer = await self.workflows.RegisterWorker(request)
        return cast("workflow_pb.RegisterWorkerResponse", answer)

    async def beat(
        self, worker_id: str, token: str, **fields: Any
    ) -> workflow_pb.WorkerHeartbeatResponse:
        request = workflow_pb.WorkerHeartbeatRequest(
            namespace_id=NAMESPACE, worker_id=worker_id, token=token, **fields
        )
        answer = await self.workflows.WorkerHeartbeat(request)
        return cast("workflow_pb.WorkerHeartbeatResponse", answer)

    async def poll(self, worker_id: str, **fields: Any) -> list[task_pb2.AssignedTask]:
        return list((await self.polling(worker_id, **fields)).tasks)

    def polling(self, worker_id: str, **fields: Any) -> Awaitable[workflow_pb.PollActivityResponse]:
        request = workflow_pb.PollActivityRequest(
            **{
                "namespace_id": NAMESPACE,
                "worker_id": worker_id,
                "task_queue": QUEUE,
                "supported_workflow_types": ["mail"],
                "max_tasks": 10,
                "wait": Duration(),
                **fields,
            }
        )
        return cast(
            "Awaitable[workflow_pb.PollActivityResponse]", self.workflows.PollActivity(request)
        )

    async def finish(
        self, worker_id: str, *items: task_pb2.TaskFinish
    ) -> list[task_pb.ReportResult]:
        request = task_pb.FinishTasksRequest(
            namespace_id=NAMESPACE, worker_id=worker_id, items=items
        )
        return list((await self.tasks.FinishTasks(request)).results)

    async def worker(self, worker_id: str) -> worker_pb2.Worker:
        request = workflow_pb.GetWorkerRequest(namespace_id=NAMESPACE, worker_id=worker_id)
        answer = await self.workflows.GetWorker(request)
        return cast("worker_pb2.Worker", answer.worker)

    async def open_session(self, worker_id: str, **fields: Any) -> Stream:
        """Open a session and return it with its welcome read."""
        stream = Stream(self.sessions.Open())
        hello = session_pb.Hello(
            **{"namespace_id": NAMESPACE, "worker_id": worker_id, "window": 10, **fields}
        )
        await stream.send(hello=hello)
        stream.welcome = (await stream.read()).welcome
        return stream

    async def session_worker(self, **fields: Any) -> tuple[str, Stream]:
        """Register a worker of the session mode and open its first session."""
        made = await self.register(mode=worker_pb2.WORKER_MODE_SESSION)
        return made.worker_id, await self.open_session(made.worker_id, session_no=1, **fields)


class Stream:
    """A worker's end of a session."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.welcome = session_pb.Welcome()

    async def send(self, **parts: Any) -> None:
        await self.call.write(session_pb.ClientFrame(**parts))

    async def read(self) -> session_pb.ServerFrame:
        async with asyncio.timeout(ANSWER_S):
            frame = await self.call.read()
        assert frame is not grpc.aio.EOF
        return cast("session_pb.ServerFrame", frame)

    async def until(self, is_there: Callable[[session_pb.ServerFrame], object]) -> Any:
        """Return the first thing that a coming frame has."""
        while True:
            found = is_there(await self.read())
            if found:
                return found

    async def tasks(self, count: int = 1) -> list[task_pb2.AssignedTask]:
        got: list[task_pb2.AssignedTask] = []
        while len(got) < count:
            got.extend((await self.read()).tasks)
        return got

    async def end(self) -> None:
        """Read to the end of the stream."""
        async with asyncio.timeout(ANSWER_S):
            while await self.call.read() is not grpc.aio.EOF:
                pass


def succeeded(
    task: task_pb2.AssignedTask | task_pb2.TaskRef, output: bytes = b""
) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=task_pb2.FINISH_KIND_SUCCEEDED,
        output=output,
    )


def ref(task: task_pb2.AssignedTask) -> task_pb2.TaskRef:
    return task_pb2.TaskRef(task_id=task.task_id, attempt=task.attempt)


def state_name(number: task_pb2.TaskState.ValueType) -> str:
    return task_pb2.TaskState.Name(number).removeprefix("TASK_STATE_")


def detail(failure: grpc.aio.AioRpcError) -> error_pb2.ErrorDetail:
    """Return the typed detail of a failed call."""
    status = rpc_status.from_call(failure)
    assert status is not None, failure
    made = error_pb2.ErrorDetail()
    assert status.details[0].Unpack(made)
    return made


async def refused(call: Awaitable[object]) -> tuple[str, error_pb2.ErrorDetail]:
    """Return status and detail of a call that must be refused."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as failure:
        return failure.code().name, detail(failure)
    raise AssertionError(answer)


@asynccontextmanager
async def open_wire(
    engine: Engine, allowance: Allowance | None = None, **settings: Any
) -> AsyncIterator[Wire]:
    """Serve an engine on a free port and connect to it."""
    made = ServerSettings(grpc=Address("127.0.0.1", 0), **settings)
    server = RpcServer(engine, made, Readiness(engine), lambda *_: None, allowance)
    address = await server.start()
    async with grpc.aio.insecure_channel(str(address)) as channel:
        try:
            yield Wire(channel, address, server)
        finally:
            await server.stop(0)
