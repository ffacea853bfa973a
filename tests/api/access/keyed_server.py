"""A server of both edges, and the keys that are shown to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import httpx

from tenure.core.access.api_key import Role
from tenure.engine.access import command as c
from tenure.engine.engine import Engine
from tests.api.http.site import Site, site_of
from tests.api.rpc.wire import Wire, open_wire, refused
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, World

FREE: Final = ("/healthz", "/readyz")


def bearer(key: str) -> dict[str, str]:
    """Return the header that shows a key."""
    return {"authorization": f"Bearer {key}"}


def shown(key: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that shows a key."""
    return (("authorization", f"Bearer {key}"),)


def key_id(key: str) -> str:
    return key.split("_", 2)[1]


class KeyedServer:
    """One engine behind gRPC and HTTP."""

    def __init__(self, world: World, engine: Engine, wire: Wire, site: Site) -> None:
        self.world = world
        self.engine = engine
        self.wire = wire
        self.site = site

    async def make_key(self, role: str = "admin", *namespaces: str, expires_in_ms: int = 0) -> str:
        """Make a key behind the edges, as the first one is made."""
        command = c.CreateKey(
            name=role, role=Role(role), namespaces=namespaces, expires_in_ms=expires_in_ms
        )
        return (await self.engine.submit(command)).text.reveal()

    async def revoke(self, key: str) -> None:
        await self.engine.submit(c.RevokeKey(key_id=key_id(key)))

    async def http(self, method: str, path: str, key: str = "", **options: Any) -> httpx.Response:
        """Ask over HTTP in the world's namespace."""
        headers = {**(bearer(key) if key else {}), **options.pop("headers", {})}
        return await self.site.client.request(method, path, headers=headers, **options)

    async def code(self, method: str, path: str, key: str = "", **options: Any) -> tuple[int, str]:
        """Return status and error code of an answer; a good one has none."""
        answer = await self.http(method, path, key, **options)
        return answer.status_code, answer.json().get("error", "") if answer.content else ""

    async def refused(self, call: Awaitable[object]) -> tuple[str, str]:
        """Return status and code of a call that has to be refused."""
        status, detail = await refused(call)
        return status, detail.code


@asynccontextmanager
async def open_lobby(world: World) -> AsyncIterator[KeyedServer]:
    """Put an engine on both wires."""
    engine = await world.start()
    async with open_wire(engine) as wire, site_of(world, engine) as site:
        yield KeyedServer(world, engine, wire, site)


async def ended(call: Any) -> tuple[str, str]:
    """Read a stream to its end; return status and message of how it was ended."""
    try:
        async with asyncio.timeout(ANSWER_S):
            while await call.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as failure:
        return failure.code().name, failure.details() or ""
    return "OK", ""


__all__ = ["FREE", "NAMESPACE", "KeyedServer", "bearer", "ended", "key_id", "open_lobby", "shown"]
