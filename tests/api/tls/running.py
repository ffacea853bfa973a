"""A whole server with TLS on real sockets, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import grpc
import uvloop

from tenure.api.guard.tls import TlsFiles
from tenure.api.server import Server
from tenure.api.setting import Address, ServerSettings
from tenure.engine.clock import SystemClock
from tenure.sdk.transport.tls import TLS, credentials
from tenure.store.location import make_store
from tenure.v1 import workflow_service_pb2 as pb
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import ANSWER_S

LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
HOST: Final = "localhost"
_ANY: Final = Address("127.0.0.1", 0)


class Running:
    """Where a server listens, and short ways to talk to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.http_port = server.http_address.port
        self.grpc_port = server.grpc_address.port
        self.target = f"{HOST}:{self.grpc_port}"

    def connect(self, tls: TLS) -> ssl.SSLSocket:
        """Open a connection to the HTTP edge."""
        ca, certificate, key = tls.paths
        context = ssl.create_default_context(cafile=ca)
        if certificate:
            context.load_cert_chain(certificate, key)
        plain = socket.create_connection(("127.0.0.1", self.http_port), ANSWER_S)
        try:
            return context.wrap_socket(plain, server_hostname=HOST)
        except BaseException:
            plain.close()
            raise

    def get(self, tls: TLS) -> int:
        """Ask the HTTP edge how it is over a new connection; return the status."""
        with contextlib.closing(self.connect(tls)) as connection:
            return status(connection)

    def ask(self, tls: TLS) -> bool:
        """Ask the gRPC edge the same over a new connection; tell whether it is well."""
        with contextlib.closing(self.channel(tls)) as channel:
            return health(channel)

    def channel(self, tls: TLS | None) -> grpc.Channel:
        """Return a channel that shares its connection with no other."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        if tls is None:
            return grpc.insecure_channel(self.target, options=options)
        return grpc.secure_channel(self.target, credentials(tls), options=options)


def status(connection: ssl.SSLSocket) -> int:
    """Send a request over an open connection, and return the status of the answer."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def health(channel: grpc.Channel) -> bool:
    """Tell whether the server says that it is well."""
    answer = WorkflowServiceStub(channel).HealthCheck(pb.HealthCheckRequest(), timeout=ANSWER_S)
    return bool(answer.status == pb.HealthCheckResponse.SERVING_STATUS_SERVING)


@contextlib.contextmanager
def running(
    folder: Path, tls: TlsFiles | None, loop: str = "uvloop", *, grpc_port: int = 0
) -> Iterator[Running]:
    """Run a server until the end of the block."""
    started: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        settings = ServerSettings(http=_ANY, grpc=Address("127.0.0.1", grpc_port), tls=tls)
        is_over, clock = asyncio.Event(), SystemClock()
        try:
            store = make_store(f"sqlite:///{folder / 'tenure.db'}", clock=clock.now_ms)
            server = Server(store, settings, clock=clock)
            await server.start()
        except BaseException as error:  # noqa: BLE001 (it is raised where the server is wanted)
            started.set_exception(error)
            return
        started.set_result((server, asyncio.get_running_loop(), is_over))
        await is_over.wait()
        await server.stop()

    def run() -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        server, its_loop, is_over = started.result(ANSWER_S)
        try:
            yield Running(server)
        finally:
            its_loop.call_soon_threadsafe(is_over.set)
    finally:
        thread.join()
