"""The part of the way to a server that is about endpoints."""

from __future__ import annotations

from typing import TypedDict

from tenure.cli.client.connection import ServerConnection
from tenure.cli.show import endpoint_view as view
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.v1 import admin_service_pb2 as pb
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub


class EndpointChoice(TypedDict):
    """An endpoint as options describe it; what is None was not given."""

    url: str | None
    types: tuple[str, ...]
    headers: dict[str, str]
    concurrency: int | None
    timeout_ms: int | None
    delivery_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    heartbeat_timeout_ms: int | None
    token_ttl_ms: int | None


class EndpointClient:
    """Speaks of endpoints over the channel of a client."""

    def __init__(self, server: ServerConnection) -> None:
        self._call = server.call
        self._namespace = server.namespace
        self._stub = AdminServiceStub(server.channel)

    def create_endpoint(
        self, name: str, queue: str, choice: EndpointChoice
    ) -> view.ShownNewEndpoint:
        """Create an endpoint."""
        request = pb.CreateEndpointRequest(
            namespace_id=self._namespace,
            name=name,
            task_queue=queue,
            options=pb.EndpointOptions(**choice),
        )
        answer = self._call(self._stub.CreateEndpoint, request, pb.CreateEndpointResponse)
        return view.ShownNewEndpoint(view.endpoint(answer.endpoint), answer.secret)

    def list_endpoints(self, page_token: str, limit: int) -> tuple[list[view.ShownEndpoint], str]:
        """Return a page of endpoints, and the next token."""
        request = pb.ListEndpointsRequest(
            namespace_id=self._namespace, page_size=min(limit, PAGE_SIZE_MAX), page_token=page_token
        )
        answer = self._call(self._stub.ListEndpoints, request, pb.ListEndpointsResponse)
        return [view.endpoint(each) for each in answer.endpoints], answer.next_page_token

    def get_endpoint(self, name: str) -> view.ShownEndpoint:
        """Return an endpoint."""
        request = pb.GetEndpointRequest(namespace_id=self._namespace, name=name)
        answer = self._call(self._stub.GetEndpoint, request, pb.GetEndpointResponse)
        return view.endpoint(answer.endpoint)

    def set_endpoint(self, name: str, choice: EndpointChoice) -> view.ShownEndpoint:
        """Change an endpoint."""
        request = pb.SetEndpointRequest(
            namespace_id=self._namespace, name=name, options=pb.EndpointOptions(**choice)
        )
        answer = self._call(self._stub.SetEndpoint, request, pb.SetEndpointResponse)
        return view.endpoint(answer.endpoint)

    def pause_endpoint(self, name: str, *, is_paused: bool) -> view.ShownEndpoint:
        """Pause or resume an endpoint."""
        request = pb.PauseEndpointRequest(
            namespace_id=self._namespace, name=name, is_paused=is_paused
        )
        answer = self._call(self._stub.PauseEndpoint, request, pb.PauseEndpointResponse)
        return view.endpoint(answer.endpoint)

    def test_endpoint(self, name: str) -> view.ShownDelivery:
        """Send an endpoint a message without a task."""
        request = pb.TestEndpointRequest(namespace_id=self._namespace, name=name)
        answer = self._call(self._stub.TestEndpoint, request, pb.TestEndpointResponse)
        return view.delivery(answer)

    def rotate_secret(self, name: str) -> view.ShownNewEndpoint:
        """Make a new secret for an endpoint."""
        request = pb.RotateEndpointSecretRequest(namespace_id=self._namespace, name=name)
        answer = self._call(
            self._stub.RotateEndpointSecret, request, pb.RotateEndpointSecretResponse
        )
        return view.ShownNewEndpoint(view.endpoint(answer.endpoint), answer.secret)

    def delete_endpoint(self, name: str) -> view.ShownEndpoint:
        """Delete an endpoint."""
        request = pb.DeleteEndpointRequest(namespace_id=self._namespace, name=name)
        answer = self._call(self._stub.DeleteEndpoint, request, pb.DeleteEndpointResponse)
        return view.endpoint(answer.endpoint)
