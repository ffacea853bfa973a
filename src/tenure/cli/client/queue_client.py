"""The part of the way to a server that is about queues."""

from __future__ import annotations

from tenure.cli.client.connection import ServerConnection
from tenure.cli.show import view
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.v1 import admin_service_pb2 as pb
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub


class QueueClient:
    """Speaks of queues over the channel of a client."""

    def __init__(self, server: ServerConnection) -> None:
        self._call = server.call
        self._namespace = server.namespace
        self._stub = AdminServiceStub(server.channel)

    def list_queues(self, page_token: str, limit: int) -> tuple[list[view.ShownQueue], str]:
        """Return a page of the queues that have settings or live tasks, and the next token."""
        request = pb.ListQueuesRequest(
            namespace_id=self._namespace, page_size=min(limit, PAGE_SIZE_MAX), page_token=page_token
        )
        answer = self._call(self._stub.ListQueues, request, pb.ListQueuesResponse)
        return [view.queue(each) for each in answer.queues], answer.next_page_token

    def get_queue(self, name: str) -> view.ShownQueue:
        """Return a queue."""
        request = pb.GetQueueRequest(namespace_id=self._namespace, name=name)
        return view.queue(self._call(self._stub.GetQueue, request, pb.GetQueueResponse).queue)

    def set_queue(
        self, name: str, *, is_paused: bool | None = None, concurrency_max: int | None = None
    ) -> view.ShownQueue:
        """Set a brake of a queue; what is None stays as it is."""
        request = pb.SetQueueRequest(
            namespace_id=self._namespace,
            name=name,
            is_paused=is_paused,
            concurrency_max=concurrency_max,
        )
        return view.queue(self._call(self._stub.SetQueue, request, pb.SetQueueResponse).queue)
