"""A server process: the engine and its two edges, from the start to the last commit."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import Final

import structlog

from tenure.api.guard.descriptor_watch import DescriptorWatch
from tenure.api.guard.exposure import check_exposure
from tenure.api.guard.rate_limit import Allowance
from tenure.api.guard.tls import Certificates
from tenure.api.http.delivery.endpoint_poster import EndpointPoster
from tenure.api.http.edge.app import make_app
from tenure.api.http.edge.serving import HttpServer, http_config
from tenure.api.metrics.metric import Metrics
from tenure.api.metrics.sampler import Sampler
from tenure.api.readiness import Readiness
from tenure.api.rpc.server import RpcServer
from tenure.api.setting import Address, ServerSettings
from tenure.engine.clock import Clock, SystemClock
from tenure.engine.dial.dialer import Dialer
from tenure.engine.dial.resolver import SystemResolver
from tenure.engine.engine import Engine
from tenure.engine.settings import Settings
from tenure.errors import InvalidArgument
from tenure.store.location import make_store
from tenure.store.transaction import Store

log = structlog.get_logger("tenure.api")
# The share of the stopping time for open calls; the rest is for commits.
_GRACE_SHARE: Final = 0.25
_BACKLOG: Final = 2_048
# Connections that are accepted in one turn of the loop.
_ACCEPTS: Final = 16


class Server:
    """One server on one store."""

    def __init__(
        self,
        store: Store,
        settings: ServerSettings,
        *,
        clock: Clock | None = None,
        engine_settings: Settings | None = None,
    ) -> None:
        """Prepare; ``start`` opens the store and listens."""
        self.settings = settings
        self.metrics = Metrics()
        self.engine = Engine(store, clock=clock or SystemClock(), settings=engine_settings)
        self.engine.meter = self.metrics
        self.readiness = Readiness(self.engine)
        self.warning = ""
        self.http_address = settings.http
        self.grpc_address = settings.grpc
        self._allowance = Allowance(self.engine.clock, settings)
        self._rpc = RpcServer(
            self.engine, settings, self.readiness, self.metrics.request, self._allowance
        )
        self._resolver = SystemResolver()
        self._http: HttpServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._background: list[asyncio.Task[None]] = []
        self.descriptors = DescriptorWatch()
        self._certificates = (
            None if settings.tls is None else Certificates(settings.tls, self.engine.clock.now_ms)
        )
        self.metrics.certificates = self._certificates

    async def start(self) -> None:
        """Open the store, then listen: every client that can connect gets answers."""
        sock = _listen(self.settings.http)
        try:
            await self.engine.start()
        except BaseException:
            sock.close()
            raise
        try:
            self.warning = check_exposure(self.settings, self.engine.access_cache)
            self.grpc_address = await self._rpc.start(self._certificates)
        except BaseException:
            sock.close()
            await self.engine.stop()
            raise
        self.http_address = Address(self.settings.http.host, sock.getsockname()[1])
        self._open_endpoints()
        app = make_app(self.engine, self.settings, self.readiness, self.metrics, self._allowance)
        grace_s = self.settings.shutdown_ms * _GRACE_SHARE / 1000
        create = asyncio.get_running_loop().create_task
        tls = None
        if self._certificates is not None:
            tls = self._certificates.http_context()
            self._background.append(create(self._certificates.watch(), name="certificates"))
        self._http = HttpServer(http_config(app, grace_s=grace_s), tls=tls)
        self._serving = create(self._http.serve(sockets=_shared(sock)))
        self._background += (
            create(Sampler(self.engine, self.metrics).serve(), name="sampler"),
            create(self._allowance.admission.serve(), name="admission"),
            create(self.descriptors.serve(), name="descriptors"),
        )

    def _open_endpoints(self) -> None:
        """Push tasks to endpoints from now on."""
        settings, http = self.settings, self.http_address
        host = http.host if http.is_loopback else "127.0.0.1"
        scheme = "http" if self._certificates is None else "https"
        local_url = f"{scheme}://{Address(host, http.port)}"
        poster = EndpointPoster(
            self.engine,
            Dialer(self._resolver),
            allowed=settings.endpoint_allow,
            base_url=settings.callback_url or local_url,
            is_public=bool(settings.callback_url),
        )
        self.engine.seats.open_endpoints(poster)

    async def stop(self) -> None:
        """Accept no more requests, let open ones end, and commit what was accepted."""
        self.readiness.stop()
        grace_s = self.settings.shutdown_ms * _GRACE_SHARE / 1000
        self.engine.end_polls()
        if self._http is not None:
            self._http.stop()
        await asyncio.gather(self._rpc.stop(grace_s), self._stop_http())
        for task in self._background:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.engine.stop()
        self._resolver.close()

    async def _stop_http(self) -> None:
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)


def _shared(sock: socket.socket) -> list[socket.socket]:
    """Return several handles of one listening socket.

    uvloop accepts one connection per turn of its loop from each; on a busy server new clients would
    wait for seconds.
    """
    return [sock, *(sock.dup() for _ in range(_ACCEPTS - 1))]


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as taken:
        # The text of the error itself repeats the address.
        why = os.strerror(taken.errno) if taken.errno else str(taken)
        message = f"Cannot listen on {address} for HTTP: {why}. Is another server running there?"
        raise InvalidArgument(message, field="http") from taken


def run_server(
    store_url: str,
    settings: ServerSettings,
    *,
    engine_settings: Settings | None = None,
    schema: str = "",
    pooled: bool = False,
    on_started: Callable[[Server], None] | None = None,
) -> None:
    """Run a server until SIGTERM or SIGINT; accepted work is committed before this returns."""
    # Thousands of records outlive a batch; the default collects after each 700th.
    gc.set_threshold(20_000, 50, 100)
    clock = SystemClock()
    store = make_store(store_url, clock=clock.now_ms, schema=schema, pooled=pooled)

    async def serve() -> None:
        server = Server(store, settings, clock=clock, engine_settings=engine_settings)
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stopping.set)
        loop.set_exception_handler(server.descriptors.handle)
        await server.start()
        log.info(
            "server.started",
            http=str(server.http_address),
            grpc=str(server.grpc_address),
            server_id=server.engine.server_id,
        )
        if on_started is not None:
            on_started(server)
        await stopping.wait()
        log.info("server.stopping")
        await server.stop()
        log.info("server.stopped")

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 (there is none on every platform)
    except ImportError:
        return None
    return uvloop.new_event_loop
