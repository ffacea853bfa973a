"""A server that answers a worker as the test says, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty

from tenure.api.rpc import error
from tenure.errors import TenureError
from tenure.v1 import (
    error_pb2,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
    workflow_service_pb2_grpc,
)
from tenure.v1 import session_service_pb2 as pb
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.bounds import ANSWER_S


class Script(
    workflow_service_pb2_grpc.WorkflowServiceServicer,
    task_service_pb2_grpc.TaskServiceServicer,
    session_service_pb2_grpc.SessionServiceServicer,
):
    """Takes registrations and sessions; what is said on them is the test's business."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self.refusals: list[TenureError] = []
        self.registrations: list[workflow_pb.RegisterWorkerRequest] = []
        self.deregistrations: list[workflow_pb.DeregisterWorkerRequest] = []
        self.finished: list[task_pb2.TaskFinish] = []
        self._opened: list[Session] = []
        self._sessions: asyncio.Queue[Session] = asyncio.Queue()

    async def RegisterWorker(  # noqa: N802
        self, request: workflow_pb.RegisterWorkerRequest, context: Any
    ) -> workflow_pb.RegisterWorkerResponse:
        self.registrations.append(request)
        if self.refusals:
            await context.abort_with_status(error.status(self.refusals.pop(0)))
        return workflow_pb.RegisterWorkerResponse(
            worker_id=f"worker-{len(self.registrations)}",
            heartbeat_interval_ms=self.interval_ms,
            lease_duration=Duration(seconds=60),
            token="t1",
        )

    async def DeregisterWorker(  # noqa: N802
        self, request: workflow_pb.DeregisterWorkerRequest, _: Any
    ) -> Empty:
        self.deregistrations.append(request)
        return Empty()

    async def FinishTasks(  # noqa: N802
        self, request: task_pb.FinishTasksRequest, _: Any
    ) -> task_pb.FinishTasksResponse:
        self.finished.extend(request.items)
        return task_pb.FinishTasksResponse(results=[task_pb.ReportResult() for _ in request.items])

    async def Open(self, requests: AsyncIterator[pb.ClientFrame], context: Any) -> None:  # noqa: N802
        session = Session(requests, context)
        self._opened.append(session)
        session.hello = (await session.read()).hello
        self._sessions.put_nowait(session)
        await session.over.wait()

    def end_sessions(self) -> None:
        """Close every stream that is open."""
        for session in self._opened:
            session.over.set()

    async def session(self) -> Session:
        """Return the next session that the worker opens, welcomed."""
        async with asyncio.timeout(ANSWER_S):
            session = await self._sessions.get()
        await session.send(
            welcome=pb.Welcome(
                token="t1",
                lease_duration_ms=60_000,
                heartbeat_interval_ms=self.interval_ms,
                session_no=session.hello.session_no,
            )
        )
        return session


class Session:
    """The server's end of a stream."""

    def __init__(self, requests: AsyncIterator[pb.ClientFrame], context: Any) -> None:
        self._requests = requests
        self._context = context
        self.hello = pb.Hello()
        self.over = asyncio.Event()
        # Answer every heartbeat as soon as it is read.
        self.grants_all = False

    async def send(self, **parts: Any) -> None:
        await self._context.write(pb.ServerFrame(**parts))

    async def read(self) -> pb.ClientFrame:
        async with asyncio.timeout(ANSWER_S):
            frame = await anext(self._requests)
        if self.grants_all and frame.HasField("beat"):
            await self.grant(frame.beat.token)
        return frame

    async def until(self, is_it: Callable[[pb.ClientFrame], object]) -> pb.ClientFrame:
        """Return the next frame that has what is waited for."""
        while True:
            frame = await self.read()
            if is_it(frame):
                return frame

    async def beat(self) -> pb.WorkerBeat:
        frame = await self.until(lambda each: each.HasField("beat"))
        return frame.beat

    async def grant(self, token: str) -> None:
        lease = pb.LeaseGrant(token=token, lease_duration_ms=60_000, heartbeat_interval_ms=100)
        await self.send(lease=lease)

    async def refuse_beat(self, code: str, **fields: Any) -> None:
        refusal = error_pb2.ErrorDetail(code=code, **fields)
        await self.send(lease=pb.LeaseGrant(error=refusal))

    async def give(self, *task_ids: str, attempt: int = 1, **fields: Any) -> None:
        await self.send(
            tasks=[
                task_pb2.AssignedTask(task_id=each, attempt=attempt, **fields) for each in task_ids
            ]
        )

    async def ack(self, task_id: str, code: str = "", *, attempt: int = 1, **fields: Any) -> None:
        refusal = error_pb2.ErrorDetail(code=code, **fields) if code else None
        kind = pb.REPORT_KIND_FINISHED
        await self.send(acks=[pb.Ack(task_id=task_id, attempt=attempt, kind=kind, error=refusal)])


@asynccontextmanager
async def open_script(interval_ms: int = 60_000) -> AsyncIterator[tuple[Script, str]]:
    """Serve a script on a free port; the worker beats each ``interval_ms``."""
    script = Script(interval_ms)
    server = grpc.aio.server()
    add = cast("Any", server)
    workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server(script, add)
    task_service_pb2_grpc.add_TaskServiceServicer_to_server(script, add)
    session_service_pb2_grpc.add_SessionServiceServicer_to_server(script, add)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield script, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
