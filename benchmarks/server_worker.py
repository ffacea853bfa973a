"""A worker process whose tasks do nothing; arguments: target, queue, type."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import uvloop

from tenure.v1 import session_service_pb2 as pb
from tenure.v1 import session_service_pb2_grpc, task_pb2, worker_pb2, workflow_service_pb2_grpc
from tenure.v1 import workflow_service_pb2 as workflow_pb

SLOTS = 1_000


class NoopWorker:
    """Completes whatever comes, a frame for a frame."""

    def __init__(self, stream: Any, token: str) -> None:  # noqa: ANN401 (gRPC's own types say no more)
        self._stream = stream
        self._token = token
        self._outbox: asyncio.Queue[pb.ClientFrame] = asyncio.Queue()

    async def write(self) -> None:
        """Write frames one after the other."""
        while True:
            await self._stream.write(await self._outbox.get())

    async def beat(self, interval_s: float) -> None:
        """Keep the lease."""
        while True:
            await asyncio.sleep(interval_s)
            self._outbox.put_nowait(pb.ClientFrame(beat=pb.WorkerBeat(token=self._token)))

    async def read(self) -> None:
        """Complete what comes."""
        while (frame := await self._stream.read()) is not grpc.aio.EOF:
            if frame.HasField("lease"):
                self._token = frame.lease.token
            if frame.tasks:
                done = [
                    task_pb2.TaskFinish(
                        task_id=task.task_id,
                        attempt=task.attempt,
                        kind=task_pb2.FINISH_KIND_SUCCEEDED,
                    )
                    for task in frame.tasks
                ]
                self._outbox.put_nowait(pb.ClientFrame(finished=done))


async def main(target: str, queue: str, type_: str) -> None:
    """Register, open a session and work."""
    async with grpc.aio.insecure_channel(target) as channel, asyncio.TaskGroup() as group:
        workflows: Any = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        made = await workflows.RegisterWorker(
            workflow_pb.RegisterWorkerRequest(
                task_queue=queue,
                workflow_types=[type_],
                mode=worker_pb2.WORKER_MODE_SESSION,
                max_concurrent=SLOTS,
            )
        )
        stream: Any = session_service_pb2_grpc.SessionServiceStub(channel).Open()
        hello = pb.Hello(worker_id=made.worker_id, session_no=1, window=SLOTS)
        await stream.write(pb.ClientFrame(hello=hello))
        worker = NoopWorker(stream, made.token)
        for each in (worker.write(), worker.beat(made.heartbeat_interval_ms / 1000), worker.read()):
            group.create_task(each)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
