"""The gRPC server: its services, limits, health and reflection."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tenure.api.guard.access import Access
from tenure.api.guard.rate_limit import Allowance
from tenure.api.guard.tls import Certificates
from tenure.api.readiness import Readiness
from tenure.api.rpc.boundary import Boundary
from tenure.api.rpc.outcome import Count
from tenure.api.rpc.overload_interceptor import OverloadInterceptor
from tenure.api.rpc.served.served_address import ServedAddresses
from tenure.api.rpc.served.worker_caller import WorkerCaller
from tenure.api.rpc.service.session_service import SessionService
from tenure.api.rpc.service_spec import ServiceDependencies
from tenure.api.rpc.table import SERVICES
from tenure.api.setting import Address, ServerSettings
from tenure.core import limits
from tenure.engine.dial.dialer import Dialer
from tenure.engine.dial.resolver import SystemResolver
from tenure.engine.engine import Engine
from tenure.errors import InvalidArgument

_NAMES: Final = tuple(each.descriptor.full_name for each in SERVICES)
_HEALTH_SECONDS: Final = 0.5
# Room for the frame around a body of the largest size.
_FRAME_ROOM: Final = 64 * 1024
_UNCOMPRESSED: Final = 1


class RpcServer:
    """Listens, serves, reports its health, and stops with open streams in bounded time."""

    def __init__(
        self,
        engine: Engine,
        settings: ServerSettings,
        readiness: Readiness,
        count: Count,
        allowance: Allowance | None = None,
    ) -> None:
        """Prepare; ``start`` listens, and calls served workers."""
        allowance = allowance or Allowance(engine.clock, settings)
        self._engine = engine
        self._resolver = SystemResolver()
        served = ServedAddresses(Dialer(self._resolver), settings.served_allow)
        self._caller = WorkerCaller(engine, served, settings.served_tls)
        self._settings = settings
        self._readiness = readiness
        shared = ServiceDependencies(engine, allowance, readiness, count, served)
        self._services = [each.make(shared) for each in SERVICES]
        self._health = health.aio.HealthServicer()
        self._watching: asyncio.Task[None] | None = None
        self._credentials: grpc.ServerCredentials | None = None
        limit = settings.body_bytes_max + _FRAME_ROOM
        overload = OverloadInterceptor(allowance.admission, count, engine.clock)
        self._server = grpc.aio.server(
            interceptors=[overload, Boundary(count, Access(engine, allowance.refusals), overload)],
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", -1),
                # Two servers on one port would share its connections without notice.
                ("grpc.so_reuseport", 0),
                # Workers may ping as often as their proxies need it.
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.max_concurrent_streams", limits.CONNECTION_STREAMS_MAX),
                # Unread data must stay small; it does not grow with the bandwidth either.
                ("grpc.http2.lookahead_bytes", limits.STREAM_WINDOW_BYTES),
                ("grpc.http2.bdp_probe", 0),
                ("grpc.server.max_pending_requests_hard_limit", limits.PENDING_CALLS_MAX),
                # None: a compressed message is unpacked completely before its size is checked.
                ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED),
                ("grpc.server_handshake_timeout_ms", limits.TLS_HANDSHAKE_MS),
            ],
        )
        for spec, service in zip(SERVICES, self._services, strict=True):
            spec.add_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    @property
    def session_count(self) -> int:
        """Return how many sessions are open."""
        return sum(len(each) for each in self._services if isinstance(each, SessionService))

    async def start(self, certificates: Certificates | None = None) -> Address:
        """Listen, and return the address."""
        wanted = self._settings.grpc
        try:
            if certificates is None:
                port = self._server.add_insecure_port(str(wanted))
            else:
                # gRPC keeps only a pointer to it.
                self._credentials = certificates.rpc_credentials()
                port = self._server.add_secure_port(str(wanted), self._credentials)
        except RuntimeError as taken:
            message = f"Cannot listen on {wanted} for gRPC. Another server may be running there."
            raise InvalidArgument(message, field="grpc") from taken
        await self._server.start()
        self._engine.seats.open(self._caller)
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        return Address(wanted.host, port)

    async def _watch(self) -> None:
        """Keep the standard health service up to date."""
        serving = health_pb2.HealthCheckResponse.SERVING
        told = None
        while True:
            status = health_pb2.HealthCheckResponse.NOT_SERVING
            if self._readiness.problem() is None:
                status = serving
            if status != told:
                told = status
                for service in ("", *_NAMES):
                    await self._health.set(service, status)
            await asyncio.sleep(_HEALTH_SECONDS)

    async def stop(self, grace_s: float) -> None:
        """Close sessions, let calls end, and cancel the rest after the grace."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._health.enter_graceful_shutdown()
        for service in self._services:
            service.close()
        await self._server.stop(grace_s)
        self._resolver.close()
