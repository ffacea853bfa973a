"""A served worker by hand, with nothing of Tenure but the generated code.

It hosts WorkerService, keeps what it holds in plain dictionaries, and obeys the protocol. What it
runs ends when ``work`` says so; a test may make it hang, fail, lie, or lose what it has.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc_status import rpc_status

from tenure.v1 import error_pb2, task_pb2
from tenure.v1 import session_service_pb2 as s
from tenure.v1 import worker_service_pb2 as pb
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.worker_pb2 import WORKER_MODE_SERVED
from tenure.v1.worker_service_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub

Ref = tuple[str, int]
Work = Callable[[task_pb2.AssignedTask], Awaitable[task_pb2.TaskFinish]]
FRAME_BYTES: Final = 900_000


def refusal(code: grpc.StatusCode, name: str, message: str) -> grpc.Status:
    """Return a status with the detail that the protocol names."""
    packed = any_pb2.Any()
    packed.Pack(error_pb2.ErrorDetail(code=name, message=message))
    number: int = code.value[0]
    made = status_pb2.Status(code=number, message=message, details=[packed])
    status: grpc.Status = rpc_status.to_status(made)
    return status


def succeeded(task: task_pb2.AssignedTask, output: bytes = b"done") -> task_pb2.TaskFinish:
    """Return the usual end of a task."""
    return task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=task_pb2.FINISH_KIND_SUCCEEDED,
        output=output,
    )


async def at_once(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    """Do nothing, and succeed."""
    return succeeded(task)


class ServedWorker:
    """What one incarnation knows: its id and secret, what it holds, and what it has ended."""

    def __init__(self, queue: str, types: tuple[str, ...], work: Work = at_once) -> None:
        self.queue = queue
        self.types = types
        self.work = work
        self.slots = 100
        self.worker_id = ""
        self.secret = ""
        self.instance_key = uuid.uuid4().hex
        self.running: dict[Ref, asyncio.Task[None] | None] = {}
        self.completed: dict[Ref, task_pb2.TaskFinish] = {}
        self.seen: set[Ref] = set()
        # How often each attempt was begun, and by which calls it was told to stop.
        self.begun: dict[Ref, int] = {}
        self.kills: list[pb.TaskToKill] = []
        self.acks: list[s.Ack] = []
        self.calls: list[pb.HeartbeatRequest] = []
        self.call_times: list[float] = []
        self.refused: list[str] = []
        self.highest = (0, 0)
        self.last: tuple[tuple[int, int], pb.HeartbeatResponse] | None = None
        self.totals = [0, 0]
        self.is_over = False
        # What a test changes.
        self.before: Callable[[pb.HeartbeatRequest], Awaitable[None]] | None = None
        self.change: Callable[[pb.HeartbeatResponse], None] | None = None
        self.beats: list[task_pb2.TaskBeat] = []
        self.keeps_calls = True

    async def register(self, target: str, address: str, **fields: Any) -> w.RegisterWorkerResponse:
        """Register, and know the secret from then on."""
        async with grpc.aio.insecure_channel(target) as channel:
            answer: w.RegisterWorkerResponse = await WorkflowServiceStub(channel).RegisterWorker(
                w.RegisterWorkerRequest(
                    task_queue=self.queue,
                    workflow_types=self.types,
                    instance_key=self.instance_key,
                    mode=WORKER_MODE_SERVED,
                    max_concurrent=self.slots,
                    address=address,
                    **fields,
                )
            )
        self.worker_id, self.secret = answer.worker_id, answer.call_secret
        return answer

    def holds(self, ref: Ref) -> bool:
        return ref in self.running or ref in self.completed

    # -- A call

    async def heartbeat(
        self, request: pb.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.HeartbeatResponse:
        if self.before is not None:
            await self.before(request)
        pair = (request.session_no, request.call_no)
        if request.worker_id != self.worker_id or self.is_over:
            self.refused.append("worker_inactive")
            code = grpc.StatusCode.FAILED_PRECONDITION
            await context.abort_with_status(refusal(code, "worker_inactive", "another worker"))
        if self.last is not None and self.last[0] == pair:
            return self.last[1]
        if pair < self.highest:
            self.refused.append("wrong_state")
            code = grpc.StatusCode.FAILED_PRECONDITION
            await context.abort_with_status(refusal(code, "wrong_state", "an older call"))
        self.highest = pair
        if self.keeps_calls:
            self.calls.append(request)
        self.call_times.append(time.monotonic())
        self._take(request)
        answer = self._answer(request)
        if self.change is not None:
            self.change(answer)
        self.last = (pair, answer)
        return answer

    def _take(self, request: pb.HeartbeatRequest) -> None:
        for ack in request.acks:
            self.acks.append(ack)
            if ack.kind == s.REPORT_KIND_FINISHED:
                self.completed.pop((ack.task_id, ack.attempt), None)
        for kill in request.tasks_to_kill:
            self.kills.append(kill)
            ref = (kill.task_id, kill.attempt)
            self._kill(ref, is_ours=kill.reason == pb.KILL_REASON_CANCEL)
        for task in request.tasks_to_run:
            self._begin(task)
        if request.HasField("end"):
            self.is_over = True
            for ref in list(self.running):
                self._kill(ref, is_ours=False)

    def _begin(self, task: task_pb2.AssignedTask) -> None:
        ref = (task.task_id, task.attempt)
        if ref in self.seen:
            return
        self.seen.add(ref)
        self.begun[ref] = self.begun.get(ref, 0) + 1
        self.running[ref] = asyncio.get_running_loop().create_task(self._run(task, ref))

    async def _run(self, task: task_pb2.AssignedTask, ref: Ref) -> None:
        try:
            finish = await self.work(task)
        except asyncio.CancelledError:
            finish = task_pb2.TaskFinish(
                task_id=ref[0], attempt=ref[1], kind=task_pb2.FINISH_KIND_CANCELLED
            )
        if self.running.pop(ref, None) is None:
            return
        self.completed[ref] = finish
        self.totals[finish.kind != task_pb2.FINISH_KIND_SUCCEEDED] += 1

    def _kill(self, ref: Ref, *, is_ours: bool) -> None:
        task = self.running.get(ref)
        if not is_ours:
            self.completed.pop(ref, None)
            self.running.pop(ref, None)
        if task is not None:
            task.cancel()

    def _answer(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        answer = pb.HeartbeatResponse(
            worker_id=self.worker_id,
            call_no=request.call_no,
            total_completed=self.totals[0],
            total_failed=self.totals[1],
            active_count=len(self.running),
            window=self.slots,
            task_beats=self.beats,
        )
        self.beats = []
        size = 0
        for ref, finish in self.completed.items():
            if size and size + finish.ByteSize() > FRAME_BYTES:
                answer.has_more = True
                answer.running_tasks.add(task_id=ref[0], attempt=ref[1])
                continue
            size += finish.ByteSize()
            answer.completed_tasks.add().finish.CopyFrom(finish)
        for task_id, attempt in self.running:
            answer.running_tasks.add(task_id=task_id, attempt=attempt)
        return answer

    def stop(self) -> None:
        """End what runs."""
        for task in self.running.values():
            if task is not None:
                task.cancel()


class ServedHost(WorkerServiceServicer):
    """One port at which any number of served workers listen."""

    def __init__(self) -> None:
        self.workers: dict[str, ServedWorker] = {}
        self.address = ""
        self.refused: list[str] = []
        self._server: grpc.aio.Server | None = None

    async def start(self, port: int = 0, credentials: grpc.ServerCredentials | None = None) -> str:
        """Listen on loopback, and return the address."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_WorkerServiceServicer_to_server(self, self._server)
        place = f"127.0.0.1:{port}"
        if credentials is None:
            port = self._server.add_insecure_port(place)
        else:
            port = self._server.add_secure_port(place, credentials)
        await self._server.start()
        self.address = f"127.0.0.1:{port}"
        return self.address

    async def add(self, worker: ServedWorker, target: str, **fields: Any) -> ServedWorker:
        """Register a worker that listens here."""
        await worker.register(target, self.address, **fields)
        self.workers[worker.worker_id] = worker
        return worker

    async def Heartbeat(  # noqa: N802 (the name in the protocol)
        self, request: pb.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.HeartbeatResponse:
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        worker = self.workers.get(request.worker_id)
        secrets = {f"Bearer {each.secret}" for each in self.workers.values()}
        if given not in secrets if worker is None else given != f"Bearer {worker.secret}":
            self.refused.append("unauthenticated")
            code = grpc.StatusCode.UNAUTHENTICATED
            await context.abort_with_status(refusal(code, "unauthenticated", "no secret"))
        if worker is None:
            self.refused.append("worker_inactive")
            code = grpc.StatusCode.FAILED_PRECONDITION
            await context.abort_with_status(refusal(code, "worker_inactive", "another worker"))
            raise AssertionError
        return await worker.heartbeat(request, context)

    async def stop(self, grace_s: float | None = None) -> None:
        """Listen no more; what runs is ended."""
        if self._server is not None:
            await self._server.stop(grace_s)
        for worker in self.workers.values():
            worker.stop()
