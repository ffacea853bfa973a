"""Both edges of one server, and the shape that every test of bad input has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tenure.engine.engine import Engine
from tenure.v1 import error_pb2
from tests.api.http.site import TASK, Site, site_of
from tests.api.rpc.wire import Wire, open_wire, refused
from tests.engine.world import Clock, World, open_database


class Refusal(NamedTuple):
    """What both edges say of a refusal: status, code, and the field that belongs to the code."""

    status: int | str
    code: str
    field: str = ""


class BothEdges:
    """A server on both wires, with a store of its own."""

    def __init__(self, world: World, engine: Engine, site: Site, wire: Wire) -> None:
        self.world = world
        self.engine = engine
        self.site = site
        self.wire = wire

    async def http(self, method: str, path: str, **options: Any) -> Refusal:
        """Send a request that has to be refused without a change, and see the server alive."""
        before = await self.world.dump()
        status, code, fields = await self.site.refused(method, path, **options)
        assert await self.world.dump() == before
        await self.answers()
        return Refusal(status, code, str(fields.get("field", "")))

    async def grpc(self, call: Awaitable[object]) -> Refusal:
        """Await a call that has to be refused without a change, and see the server alive."""
        status, detail = await self.detail(call)
        return Refusal(status, detail.code, detail.field)

    async def detail(self, call: Awaitable[object]) -> tuple[str, error_pb2.ErrorDetail]:
        before = await self.world.dump()
        found = await refused(call)
        assert await self.world.dump() == before
        await self.answers()
        return found

    async def answers(self) -> None:
        """See that the server still does its work on both wires."""
        assert (await self.site.client.get("/healthz")).status_code == 200
        listed = await self.site.client.get("/v1/queues")
        assert listed.status_code == 200, listed.text


@asynccontextmanager
async def open_stand(**settings: Any) -> AsyncIterator[BothEdges]:
    """Put an engine on SQLite on both wires; a list is asked for after each refusal."""
    clock = Clock()
    async with open_database("sqlite", clock) as database:
        world = World(database, clock)
        engine = await world.start(**settings)
        async with site_of(world, engine) as site, open_wire(engine, lists_per_s=0) as wire:
            yield BothEdges(world, engine, site, wire)
        await world.close()


def enqueue(**changes: Any) -> dict[str, Any]:
    """Return the body of an enqueue."""
    return {**TASK, **changes}
