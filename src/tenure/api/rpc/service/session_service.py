"""Sessions of workers over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tenure.api.guard.scope import scope
from tenure.api.rpc import error
from tenure.api.rpc.context import Context
from tenure.api.rpc.permission import MethodRule, Scope
from tenure.api.rpc.service_spec import EngineService, ServiceDependencies, ServiceSpec
from tenure.api.rpc.session.worker_session import WorkerSession
from tenure.core.access.permission import Action
from tenure.errors import InvalidArgument
from tenure.v1 import session_service_pb2 as pb
from tenure.v1 import session_service_pb2_grpc


class SessionService(EngineService, session_service_pb2_grpc.SessionServiceServicer):
    """Keeps the open sessions of this server, to close them when it stops."""

    def __init__(self, shared: ServiceDependencies) -> None:
        """Start without any."""
        super().__init__(shared)
        self._sessions: set[WorkerSession] = set()
        self._is_closing = False

    def __len__(self) -> int:
        """Return how many sessions are open."""
        return len(self._sessions)

    def close(self) -> None:
        """Close every session: their workers reconnect elsewhere, and none becomes a suspect."""
        self._is_closing = True
        for session in self._sessions:
            session.close()

    async def Open(self, requests: AsyncIterator[pb.ClientFrame], context: Context) -> None:
        """Serve one session from its hello to its end."""
        first = await anext(requests, None)
        if first is None or not first.HasField("hello"):
            raise InvalidArgument("The first frame must have the hello", field="hello")
        if self._is_closing:
            raise error.shutting_down("Open the session elsewhere.")
        session = WorkerSession(self._engine, context, first.hello, self._allowance.beats)
        self._sessions.add(session)
        try:
            with self._allowance.sessions.place(scope(first.hello.namespace_id)):
                await session.serve(requests)
        finally:
            self._sessions.discard(session)


SPEC: Final = ServiceSpec(
    descriptor=pb.DESCRIPTOR.services_by_name["SessionService"],
    make=SessionService,
    add_to_server=session_service_pb2_grpc.add_SessionServiceServicer_to_server,
    rules={MethodRule(Action.WORK, Scope.HELLO): "Open"},
)
