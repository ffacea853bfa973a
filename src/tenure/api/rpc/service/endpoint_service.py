"""The calls about endpoints: the part of the service of operators that pushes tasks."""

from __future__ import annotations

from tenure.api.guard.access import actor
from tenure.api.guard.scope import scope
from tenure.api.paging import requested_page
from tenure.api.rpc.context import Context
from tenure.api.rpc.service_spec import EngineService
from tenure.api.rpc.view import endpoint_view
from tenure.core.endpoint.signature import secret_text
from tenure.engine.endpoint import command as c
from tenure.engine.endpoint import operate
from tenure.engine.read.endpoint import list_endpoints
from tenure.v1 import admin_service_pb2 as pb


class EndpointCalls(EngineService):
    """What operators do with endpoints."""

    async def CreateEndpoint(
        self, request: pb.CreateEndpointRequest, context: Context
    ) -> pb.CreateEndpointResponse:
        """Create an endpoint; this answer is the only one with its secret."""
        command = c.CreateEndpoint(
            namespace=scope(request.namespace_id),
            name=request.name,
            queue=request.task_queue,
            spec=endpoint_view.spec(request.options),
            actor=actor(),
        )
        made = await operate.create(self._engine, command)
        shown = await self._endpoint(command.namespace, request.name)
        return pb.CreateEndpointResponse(endpoint=shown, secret=secret_text(made.secret))

    async def ListEndpoints(
        self, request: pb.ListEndpointsRequest, context: Context
    ) -> pb.ListEndpointsResponse:
        """List endpoints by name."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await list_endpoints(
            self._engine.store, namespace=namespace, page=requested_page(self._engine, request)
        )
        return pb.ListEndpointsResponse(
            endpoints=[endpoint_view.shown(each) for each in page.items],
            next_page_token=page.next_page_token,
        )

    async def GetEndpoint(
        self, request: pb.GetEndpointRequest, context: Context
    ) -> pb.GetEndpointResponse:
        """Show an endpoint."""
        shown = await self._endpoint(scope(request.namespace_id), request.name)
        return pb.GetEndpointResponse(endpoint=shown)

    async def _endpoint(self, namespace: str, name: str) -> pb.Endpoint:
        return endpoint_view.shown(await operate.find(self._engine, namespace, name))

    async def SetEndpoint(
        self, request: pb.SetEndpointRequest, context: Context
    ) -> pb.SetEndpointResponse:
        """Change an endpoint."""
        namespace, change = scope(request.namespace_id), endpoint_view.change(request.options)
        await operate.change(self._engine, namespace, request.name, change, actor=actor())
        return pb.SetEndpointResponse(endpoint=await self._endpoint(namespace, request.name))

    async def PauseEndpoint(
        self, request: pb.PauseEndpointRequest, context: Context
    ) -> pb.PauseEndpointResponse:
        """Pause or resume an endpoint."""
        namespace = scope(request.namespace_id)
        await operate.pause(
            self._engine, namespace, request.name, is_paused=request.is_paused, actor=actor()
        )
        return pb.PauseEndpointResponse(endpoint=await self._endpoint(namespace, request.name))

    async def TestEndpoint(
        self, request: pb.TestEndpointRequest, context: Context
    ) -> pb.TestEndpointResponse:
        """Send an endpoint a message without a task."""
        found = await operate.test(self._engine, scope(request.namespace_id), request.name)
        return pb.TestEndpointResponse(
            verdict=found.verdict, took_ms=found.took_ms, error=found.error
        )

    async def RotateEndpointSecret(
        self, request: pb.RotateEndpointSecretRequest, context: Context
    ) -> pb.RotateEndpointSecretResponse:
        """Make a new secret for an endpoint."""
        namespace = scope(request.namespace_id)
        made = await operate.rotate_secret(self._engine, namespace, request.name, actor=actor())
        shown = await self._endpoint(namespace, request.name)
        return pb.RotateEndpointSecretResponse(endpoint=shown, secret=secret_text(made.secret))

    async def DeleteEndpoint(
        self, request: pb.DeleteEndpointRequest, context: Context
    ) -> pb.DeleteEndpointResponse:
        """Delete an endpoint."""
        namespace = scope(request.namespace_id)
        shown = await self._endpoint(namespace, request.name)
        await operate.delete(self._engine, namespace, request.name, actor=actor())
        shown.is_deleting = True
        return pb.DeleteEndpointResponse(endpoint=shown)
