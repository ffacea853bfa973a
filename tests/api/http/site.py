"""A server of the HTTP edge on a real socket, and a client beside it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
from starlette.types import ASGIApp

from tenure.api.http.edge.app import make_app
from tenure.api.http.edge.serving import HttpServer, Protocol, http_config
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.engine.engine import Engine
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, World

UNKNOWN_ID: Final = "019b0000-0000-7000-8000-ffffffffffff"
TASK: Final = {"type": "mail", "queue": "default", "startToCloseMs": 60_000}


@asynccontextmanager
async def serving(app: ASGIApp, protocol: type[Protocol] = Protocol) -> AsyncIterator[int]:
    """Serve an application on a free port of this machine."""
    sock = socket.create_server(("127.0.0.1", 0))
    config = http_config(app, grace_s=ANSWER_S)
    config.http = protocol
    server = HttpServer(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield sock.getsockname()[1]
    finally:
        server.stop()
        await task


def client_of(port: int, **headers: str) -> httpx.AsyncClient:
    """Return a client that shares nothing with the environment of the tests."""
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=ANSWER_S, trust_env=False
    )


class Site:
    """A world with one engine, its edge, and a client in the world's namespace."""

    def __init__(self, world: World, engine: Engine, client: httpx.AsyncClient, port: int) -> None:
        self.world = world
        self.engine = engine
        self.client = client
        self.port = port

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON of a request that has to succeed."""
        answer = await self.client.request(method, path, **options)
        assert answer.is_success, answer.text
        return answer.json()

    async def refused(self, method: str, path: str, **options: Any) -> tuple[int, str, Any]:
        """Return status, code and field of a request that has to be refused, with its message."""
        answer = await self.client.request(method, path, **options)
        body = answer.json()
        assert body.pop("message")
        assert answer.headers["content-type"] == "application/json"
        return answer.status_code, body.pop("error"), body

    async def enqueue(self, **changes: Any) -> str:
        """Enqueue a task and return its id."""
        answer = await self.call("POST", "/v1/tasks", json={**TASK, **changes})
        return str(answer["taskId"])

    async def task(self, task_id: str) -> Any:
        return await self.call("GET", f"/v1/tasks/{task_id}")

    async def raw(self, data: bytes) -> bytes:
        """Send bytes on a socket of their own and return all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        async with asyncio.timeout(ANSWER_S):
            answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


@asynccontextmanager
async def site_of(
    world: World, engine: Engine, app: ASGIApp | None = None, protocol: type[Protocol] = Protocol
) -> AsyncIterator[Site]:
    """Put an engine on the wire."""
    made = app or make_app(engine, ServerSettings(), Readiness(engine))
    async with (
        serving(made, protocol) as port,
        client_of(port, **{"tenure-namespace": NAMESPACE}) as client,
    ):
        yield Site(world, engine, client, port)
