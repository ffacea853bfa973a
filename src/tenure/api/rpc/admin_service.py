"""What operators do, over gRPC."""

from __future__ import annotations

from typing import cast

from tenure.api.rpc import worker_view
from tenure.api.rpc.boundary import Context
from tenure.api.scope import scope
from tenure.core.limits import DRAIN_DEADLINE_MS
from tenure.core.queue import Queue
from tenure.engine import command as c
from tenure.engine import fleet, query
from tenure.engine.engine import Engine
from tenure.v1 import admin_service_pb2 as pb
from tenure.v1 import admin_service_pb2_grpc, worker_pb2


class AdminService(admin_service_pb2_grpc.AdminServiceServicer):
    """Translates, submits one command or asks one query, and translates back."""

    def __init__(self, engine: Engine) -> None:
        """Speak for ``engine``."""
        self._engine = engine

    async def DrainWorker(
        self,
        request: pb.DrainWorkerRequest,
        context: Context,
    ) -> pb.DrainWorkerResponse:
        """Let a worker finish what it holds and give it nothing new."""
        namespace = scope(request.namespace_id)
        command = c.DrainWorker(
            namespace=namespace,
            worker_id=request.worker_id,
            deadline_ms=_deadline_ms(request),
        )
        await self._engine.submit(command)
        return pb.DrainWorkerResponse(worker=await self._worker(namespace, request.worker_id))

    async def DrainWorkers(
        self,
        request: pb.DrainWorkersRequest,
        context: Context,
    ) -> pb.DrainWorkersResponse:
        """Drain every active worker that matches."""
        drained = await fleet.drain_matching(
            self._engine,
            namespace=scope(request.namespace_id),
            labels=dict(request.labels),
            version=request.version,
            deadline_ms=_deadline_ms(request),
        )
        return pb.DrainWorkersResponse(worker_ids=drained)

    async def EvictWorker(
        self,
        request: pb.EvictWorkerRequest,
        context: Context,
    ) -> pb.EvictWorkerResponse:
        """Take a worker offline, whatever it does."""
        namespace = scope(request.namespace_id)
        await self._engine.submit(
            c.EvictWorker(namespace=namespace, worker_id=request.worker_id),
        )
        return pb.EvictWorkerResponse(worker=await self._worker(namespace, request.worker_id))

    async def _worker(self, namespace: str, worker_id: str) -> worker_pb2.Worker:
        view = await query.get_worker(
            self._engine.store,
            namespace=namespace,
            worker_id=worker_id,
            deaf=self._engine.deaf,
        )
        return worker_view.shown(view)

    async def ListQueues(
        self,
        request: pb.ListQueuesRequest,
        context: Context,
    ) -> pb.ListQueuesResponse:
        """List the queues that have settings or live tasks."""
        namespace = scope(request.namespace_id)
        views = await query.list_queues(self._engine.store, namespace=namespace)
        return pb.ListQueuesResponse(queues=[worker_view.queue(each) for each in views])

    async def GetQueue(
        self,
        request: pb.GetQueueRequest,
        context: Context,
    ) -> pb.GetQueueResponse:
        """Show a queue."""
        namespace = scope(request.namespace_id)
        return pb.GetQueueResponse(queue=await self._queue(namespace, request.name))

    async def _queue(self, namespace: str, name: str) -> pb.Queue:
        view = await query.get_queue(self._engine.store, namespace=namespace, name=name)
        return worker_view.queue(view)

    async def SetQueue(
        self,
        request: pb.SetQueueRequest,
        context: Context,
    ) -> pb.SetQueueResponse:
        """Set the brakes of a queue."""
        namespace = scope(request.namespace_id)
        concurrency_max = request.concurrency_max if request.HasField("concurrency_max") else None
        command = c.SetQueue(
            namespace=namespace,
            name=request.name,
            is_paused=request.is_paused if request.HasField("is_paused") else None,
            concurrency_max=concurrency_max,
        )
        queue = cast("Queue", await self._engine.submit(command))
        return pb.SetQueueResponse(queue=await self._queue(namespace, queue.name))

    async def CreateNamespace(
        self,
        request: pb.CreateNamespaceRequest,
        context: Context,
    ) -> pb.CreateNamespaceResponse:
        """Create a namespace."""
        name = scope(request.name)
        await self._engine.submit(c.CreateNamespace(name=name))
        return pb.CreateNamespaceResponse(name=name)

    async def ListNamespaces(
        self,
        request: pb.ListNamespacesRequest,
        context: Context,
    ) -> pb.ListNamespacesResponse:
        """List the namespaces of this server."""
        page = await query.list_namespaces(
            self._engine.store,
            page=query.PageRequest(
                cursor_key=self._engine.secrets.cursor_key,
                size=request.page_size,
                token=request.page_token,
            ),
        )
        return pb.ListNamespacesResponse(
            names=[each.name for each in page.items],
            next_page_token=page.next_page_token,
        )


def _deadline_ms(request: pb.DrainWorkerRequest | pb.DrainWorkersRequest) -> int:
    if not request.HasField("deadline"):
        return DRAIN_DEADLINE_MS
    return worker_view.milliseconds(request.deadline, "deadline")
