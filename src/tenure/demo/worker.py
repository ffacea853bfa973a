"""An example worker: it speaks the session protocol with nothing but the generated stubs."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
from typing import Any

import grpc

from tenure.v1 import session_service_pb2 as session_pb
from tenure.v1 import session_service_pb2_grpc, task_pb2, worker_pb2, workflow_service_pb2_grpc
from tenure.v1 import workflow_service_pb2 as workflow_pb

QUEUE = "demo"
TYPE = "resize_image"
SLOTS = 4


class ExampleWorker:
    """Takes tasks, works on them for a while, and keeps its lease."""

    def __init__(self, name: str) -> None:
        """Prepare; ``run`` connects."""
        self._name = name
        self._stream: Any = None
        # A stream is written by one task at a time.
        self._outbox: asyncio.Queue[session_pb.ClientFrame] = asyncio.Queue()
        self._held: dict[str, int] = {}
        self._completed = 0
        self._token = ""

    async def run(self, target: str) -> None:
        """Register, open a session and work until the stream ends."""
        async with grpc.aio.insecure_channel(target) as channel, asyncio.TaskGroup() as group:
            # The stubs of gRPC know an asynchronous channel only by their types.
            workflows: Any = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
            registered = await workflows.RegisterWorker(
                workflow_pb.RegisterWorkerRequest(
                    task_queue=QUEUE,
                    workflow_types=[TYPE],
                    mode=worker_pb2.WORKER_MODE_SESSION,
                    max_concurrent=SLOTS,
                    name=self._name,
                    hostname=socket.gethostname(),
                    pid=os.getpid(),
                    version="demo",
                ),
            )
            self._token = registered.token
            self._stream = session_service_pb2_grpc.SessionServiceStub(channel).Open()
            hello = session_pb.Hello(worker_id=registered.worker_id, session_no=1, window=SLOTS)
            await self._stream.write(session_pb.ClientFrame(hello=hello))
            interval_s = registered.heartbeat_interval_ms / 1000
            others = [group.create_task(each) for each in (self._beat(interval_s), self._write())]
            await self._read(group)
            for each in others:
                each.cancel()

    async def _write(self) -> None:
        while True:
            await self._stream.write(await self._outbox.get())

    async def _read(self, group: asyncio.TaskGroup) -> None:
        while (frame := await self._stream.read()) is not grpc.aio.EOF:
            if frame.HasField("lease") and frame.lease.token:
                self._token = frame.lease.token
            for task in frame.tasks:
                self._held[task.task_id] = task.attempt
                group.create_task(self._work(task))

    async def _work(self, task: task_pb2.AssignedTask) -> None:
        started = [task_pb2.TaskRef(task_id=task.task_id, attempt=task.attempt)]
        self._outbox.put_nowait(session_pb.ClientFrame(started=started))
        await asyncio.sleep(random.uniform(0.3, 0.9))  # noqa: S311 (it only looks busy)
        self._completed += 1
        del self._held[task.task_id]
        finish = task_pb2.TaskFinish(
            task_id=task.task_id,
            attempt=task.attempt,
            kind=task_pb2.FINISH_KIND_SUCCEEDED,
            output=b'{"width": 640}',
        )
        self._outbox.put_nowait(session_pb.ClientFrame(finished=[finish]))

    async def _beat(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            beat = session_pb.WorkerBeat(
                token=self._token,
                total_completed=self._completed,
                active_count=len(self._held),
            )
            self._outbox.put_nowait(session_pb.ClientFrame(beat=beat))


def main() -> None:
    """Work for the server that the arguments name: ``target name``."""
    target, name = sys.argv[1:]
    asyncio.run(ExampleWorker(name).run(target))


if __name__ == "__main__":
    main()
