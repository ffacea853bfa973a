"""Connections to served workers: one for each worker that this server drives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import grpc

from tenure.api.guard.served_tls import ServedTls, credentials
from tenure.api.rpc.served import call_view
from tenure.api.rpc.served.served_address import ServedAddresses
from tenure.api.rpc.view import task_view
from tenure.core.address import IPAddress
from tenure.core.limits import REQUEST_BYTES_MAX
from tenure.core.seat.place import ServedPlace, read_place
from tenure.core.seat.record import Seat
from tenure.core.seat.secret import call_secret
from tenure.core.task.record import Task
from tenure.engine.dial.dialer import DialFailure
from tenure.engine.engine import Engine
from tenure.engine.seat.call import Call, CallAnswer, CallFailed
from tenure.v1 import worker_service_pb2 as pb

METHOD: Final = "/tenure.v1.WorkerService/Heartbeat"
_DETAILS_MAX: Final = 300
_UNCOMPRESSED: Final = 1

Heartbeat = Callable[..., Awaitable[pb.HeartbeatResponse]]


class WorkerCaller:
    """Calls served workers. A connection that failed is made anew, with its address checked."""

    def __init__(self, engine: Engine, addresses: ServedAddresses, tls: ServedTls | None) -> None:
        """Start without connections."""
        self._engine = engine
        self._addresses = addresses
        self._tls = tls
        self._channels: dict[str, tuple[grpc.aio.Channel, Heartbeat]] = {}

    async def call(self, seat: Seat, call: Call) -> CallAnswer:
        """Call a worker and return its answer; raise ``CallFailed`` if there is none."""
        heartbeat = await self._connected(seat)
        secret = call_secret(self._engine.secrets.call_key, seat.worker_id)
        try:
            message = await heartbeat(
                call_view.request(call, self._token),
                timeout=self._engine.settings.served_call_ms / 1000,
                metadata=(("authorization", f"Bearer {secret}"),),
            )
        except grpc.aio.AioRpcError as failure:
            await self.forget(seat.worker_id)
            details = (failure.details() or "")[:_DETAILS_MAX]
            raise CallFailed(f"{failure.code().name}: {details}") from failure
        except BaseException:
            # A call that was given up may still be on its way.
            await self.forget(seat.worker_id)
            raise
        return call_view.answer(message)

    def _token(self, task: Task) -> str:
        tokens = self._engine.tokens
        return tokens.sign(task_view.completion_claims(task, tokens.now_ms))

    async def _connected(self, seat: Seat) -> Heartbeat:
        known = self._channels.get(seat.worker_id)
        if known is not None:
            return known[1]
        place = read_place(seat.address)
        try:
            address = await self._addresses.find(place, seat.caller)
        except DialFailure as failure:
            raise CallFailed(str(failure)) from failure
        channel = self._open(place, address)
        heartbeat: Heartbeat = channel.unary_unary(
            METHOD,
            request_serializer=pb.HeartbeatRequest.SerializeToString,
            response_deserializer=pb.HeartbeatResponse.FromString,
        )
        self._channels[seat.worker_id] = channel, heartbeat
        return heartbeat

    def _open(self, place: ServedPlace, address: IPAddress) -> grpc.aio.Channel:
        """Open a channel to a checked address; the certificate has to be that of the host."""
        version = f"ipv{address.version}"
        host = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 (IPv6)
        target = f"{version}:{host}:{place.port}"
        options: list[tuple[str, int | str]] = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED),
        ]
        if self._tls is None:
            return grpc.aio.insecure_channel(target, options=options)
        options.append(("grpc.ssl_target_name_override", place.host))
        options.append(("grpc.default_authority", place.host))
        return grpc.aio.secure_channel(target, credentials(self._tls), options=options)

    async def forget(self, worker_id: str) -> None:
        """Close the connection to a worker; the next call makes a new one."""
        known = self._channels.pop(worker_id, None)
        if known is not None:
            await known[0].close()
