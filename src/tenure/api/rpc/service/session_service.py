"""Sessions of workers over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tenure.api.guard.rate_limit import Allowance
from tenure.api.guard.scope import scope
from tenure.api.rpc.boundary import Context, shutting_down
from tenure.api.rpc.session.worker_session import WorkerSession
from tenure.engine.engine import Engine
from tenure.errors import InvalidArgument
from tenure.v1 import session_service_pb2 as pb
from tenure.v1 import session_service_pb2_grpc


class SessionService(session_service_pb2_grpc.SessionServiceServicer):
    """Keeps the open sessions of this server, to close them when it stops."""

    def __init__(self, engine: Engine, allowance: Allowance) -> None:
        """Speak for ``engine``, within ``allowance``."""
        self._engine = engine
        self._allowance = allowance
        self._sessions: set[WorkerSession] = set()
        self._is_closing = False

    def __len__(self) -> int:
        """Return how many sessions are open."""
        return len(self._sessions)

    def close(self) -> None:
        """Close every session: their workers go on elsewhere, nobody is suspected."""
        self._is_closing = True
        for session in self._sessions:
            session.close()

    async def Open(self, requests: AsyncIterator[pb.ClientFrame], context: Context) -> None:
        """Serve one session from its hello to its end."""
        first = await anext(requests, None)
        if first is None or not first.HasField("hello"):
            raise InvalidArgument("The first frame must have the hello", field="hello")
        if self._is_closing:
            raise shutting_down("Open the session elsewhere.")
        session = WorkerSession(self._engine, context, first.hello, self._allowance.beats)
        self._sessions.add(session)
        try:
            with self._allowance.sessions.place(scope(first.hello.namespace_id)):
                await session.serve(requests)
        finally:
            self._sessions.discard(session)
