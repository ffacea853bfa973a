"""Streams that one API key holds open at a server with TLS, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import httpx

from tenure.core.limits import STREAM_PING_MS
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import session_service_pb2, task_service_pb2, worker_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub
from tenure.v1.session_service_pb2_grpc import SessionServiceStub
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import ANSWER_S

NAMESPACE: Final = "default"
KINDS: Final = ("watch", "session", "events")
_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
_UNAUTHENTICATED: Final = 401
REFUSED: Final = "UNAUTHENTICATED"


def _metadata(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


class Door:
    """The two ports of one server, and the key of its operator."""

    def __init__(self, grpc_address: str, http_address: str, ca: Path, admin_key: str) -> None:
        self.grpc = grpc_address
        self.http = http_address
        self._ca = ca
        self._admin = _metadata(admin_key)

    def channel(self) -> grpc.aio.Channel:
        """Return a channel with a connection of its own."""
        made = grpc.ssl_channel_credentials(self._ca.read_bytes())
        return grpc.aio.secure_channel(self.grpc, made, options=_OPTIONS)

    def web(self) -> httpx.AsyncClient:
        """Return a client for HTTP."""
        return httpx.AsyncClient(
            base_url=f"https://{self.http}",
            verify=self._context(),
            # The server says something sooner, also when nothing happens.
            timeout=2 * STREAM_PING_MS / 1_000,
            trust_env=False,
        )

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._ca)

    async def certificate(self, address: str) -> bytes:
        """Return the certificate that a new connection is opened with."""
        host, _, port = address.rpartition(":")
        context = self._context()
        # gRPC hangs up on whoever does not say that it speaks HTTP/2.
        context.set_alpn_protocols(["h2", "http/1.1"])
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        try:
            found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert isinstance(found, bytes)
            return found
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def new_key(self, role: str) -> str:
        """Return a new key for the default namespace."""
        async with self.channel() as channel:
            stub: Any = AdminServiceStub(channel)
            answer = await stub.CreateApiKey(
                admin_pb.CreateApiKeyRequest(
                    name=role,
                    role=admin_pb.Role.Value(f"ROLE_{role.upper()}"),
                    namespaces=[NAMESPACE],
                ),
                metadata=self._admin,
                timeout=ANSWER_S,
            )
            return str(answer.secret)

    async def revoke(self, key: str) -> None:
        """End a key."""
        async with self.channel() as channel:
            stub: Any = AdminServiceStub(channel)
            request = admin_pb.RevokeApiKeyRequest(key_id=key.split("_")[1])
            await stub.RevokeApiKey(request, metadata=self._admin, timeout=ANSWER_S)


class KeyedStream:
    """One stream, open from its making until the server ends it."""

    def __init__(self, door: Door, kind: str, key: str, task_id: str) -> None:
        """Open it; ``task_id`` is a task that has ended, so that a watch hears something."""
        self.door = door
        self.kind = kind
        self.task_id = task_id
        self.how = ""
        self._key = key
        self._is_open = asyncio.Event()
        self._ended_s = 0.0
        self._task = asyncio.ensure_future(self._run())

    def __str__(self) -> str:
        return f"{self.kind} at {self.door.grpc}"

    @property
    def is_over(self) -> bool:
        return self._task.done()

    @property
    def was_open(self) -> bool:
        return self._is_open.is_set()

    @property
    def is_refused(self) -> bool:
        """Tell whether it ended because of its key; HTTP has no word for it in the middle."""
        return self.how == REFUSED or (self.kind == "events" and self.how == "EOF")

    async def opened(self) -> None:
        """Wait until the server has said something."""
        waiting = asyncio.ensure_future(self._is_open.wait())
        await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        assert self.was_open, f"{self} was not opened: {self.how}"

    async def ended_s(self) -> float:
        """Wait for the end, and return when it was."""
        await asyncio.shield(self._task)
        return self._ended_s

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            if self.kind == "events":
                self.how = await self._listen()
            else:
                async with self.door.channel() as channel:
                    self.how = await self._read(channel)
        except (grpc.aio.AioRpcError, httpx.HTTPError) as error:
            code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else str(error)
            self.how = code
        finally:
            self._ended_s = time.monotonic()

    async def _read(self, channel: grpc.aio.Channel) -> str:
        stream = await (self._watch(channel) if self.kind == "watch" else self._session(channel))
        while await stream.read() is not grpc.aio.EOF:
            self._is_open.set()
        return "EOF"

    async def _watch(self, channel: grpc.aio.Channel) -> Any:
        stub: Any = TaskServiceStub(channel)
        stream = stub.WatchTasks(metadata=_metadata(self._key))
        request = task_service_pb2.WatchTasksRequest(namespace_id=NAMESPACE, add=[self.task_id])
        await _write(stream, request)
        return stream

    async def _session(self, channel: grpc.aio.Channel) -> Any:
        workers: Any = WorkflowServiceStub(channel)
        registered = await workers.RegisterWorker(
            workflow_pb.RegisterWorkerRequest(
                namespace_id=NAMESPACE,
                task_queue="idle",
                workflow_types=["idle"],
                mode=worker_pb2.WORKER_MODE_SESSION,
            ),
            metadata=_metadata(self._key),
            timeout=ANSWER_S,
        )
        sessions: Any = SessionServiceStub(channel)
        stream = sessions.Open(metadata=_metadata(self._key))
        hello = session_service_pb2.Hello(
            namespace_id=NAMESPACE, worker_id=registered.worker_id, session_no=1, window=1
        )
        await _write(stream, session_service_pb2.ClientFrame(hello=hello))
        return stream

    async def _listen(self) -> str:
        headers = {"authorization": f"Bearer {self._key}"}
        async with (
            self.door.web() as web,
            web.stream("GET", "/v1/events", headers=headers) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                return REFUSED if answer.status_code == _UNAUTHENTICATED else "another status"
            self._is_open.set()
            async for _ in answer.aiter_bytes():
                pass
        return "EOF"


async def _write(stream: Any, message: Any) -> None:
    """Write; what is wrong with a stream that has ended already, reading it tells."""
    with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
        await stream.write(message)
