"""A process that hosts served workers without tasks; arguments: target, how many."""

from __future__ import annotations

import sys
from typing import Any

import grpc
import uvloop

from tenure.v1 import worker_pb2
from tenure.v1 import worker_service_pb2 as pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.worker_service_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub


class Host(WorkerServiceServicer):
    """Answers every call at once."""

    async def Heartbeat(self, request: pb.HeartbeatRequest, _context: Any) -> pb.HeartbeatResponse:  # noqa: ANN401, N802 (as in the protocol)
        """Hold nothing."""
        return pb.HeartbeatResponse(
            worker_id=request.worker_id, call_no=request.call_no, window=100
        )


async def main(target: str, count: int) -> None:
    """Listen, register, say where, and answer until the parent ends this."""
    server = grpc.aio.server()
    add_WorkerServiceServicer_to_server(Host(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with grpc.aio.insecure_channel(target) as channel:
        stub = WorkflowServiceStub(channel)
        for number in range(count):
            await stub.RegisterWorker(
                workflow_pb.RegisterWorkerRequest(
                    task_queue="bench",
                    workflow_types=["noop"],
                    instance_key=f"bench-{number}",
                    mode=worker_pb2.WORKER_MODE_SERVED,
                    address=address,
                )
            )
    print(address, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
