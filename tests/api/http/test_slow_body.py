"""Bodies that come slowly: they end, and they keep nobody else out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tenure.api.http.edge.app import Edge
from tenure.api.http.operation import RequestContext, SharedGate
from tenure.api.http.table import OPERATIONS, Table
from tenure.api.metrics.metric import Metrics
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.core import limits
from tenure.core.access.api_key import Role
from tenure.engine.access import command as c
from tenure.engine.engine import Engine
from tests.api.http.site import TASK, Site, site_of
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, World
from tests.polling import eventually

PLACES: Final = 20
Begun = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


@asynccontextmanager
async def narrow(world: World) -> AsyncIterator[tuple[Site, RequestContext]]:
    """Serve with few places."""
    engine = await world.start()
    gate = SharedGate(PLACES, "requests")
    desk = RequestContext(engine, Readiness(engine), Metrics(), requests=gate)
    async with site_of(world, engine, Edge(desk, Table(OPERATIONS), ServerSettings())) as site:
        yield site, desk


@asynccontextmanager
async def slow_bodies(site: Site, count: int, key: str = "") -> AsyncIterator[Begun]:
    """Begin requests whose bodies never come whole."""
    shown = f"authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ntenure-namespace: {NAMESPACE}\r\n{shown}"
        "content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )
    begun = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(count)]
    for _, writer in begun:
        writer.write(head.encode())
    try:
        yield begun
    finally:
        for _, writer in begun:
            writer.close()


async def make_key(engine: Engine, name: str) -> str:
    made = await engine.submit(c.CreateKey(name=name, role=Role.CLIENT))
    return made.text.reveal()


async def status_of(begun: Begun) -> list[bytes]:
    """Return the status of each answer."""
    async with asyncio.timeout(ANSWER_S):
        return [(await reader.readline()).split()[1] for reader, _ in begun]


async def test_slow_bodies_of_one_key_leave_room_for_other_keys(embedded: World) -> None:
    async with narrow(embedded) as (site, desk):
        greedy, other = [await make_key(site.engine, name) for name in ("greedy", "other")]
        async with slow_bodies(site, 2 * PLACES, greedy) as begun:
            await eventually(lambda: desk.requests.count == PLACES // 2)
            headers = {"authorization": f"Bearer {other}"}
            answer = await site.client.post("/v1/tasks", json=TASK, headers=headers)
            assert answer.status_code == 201
            refused = await site.client.get(
                "/v1/tasks", headers={"authorization": f"Bearer {greedy}"}
            )
            assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited")
            assert refused.headers["retry-after"] == "1"
            del begun
        await eventually(lambda: desk.requests.count == 0)


async def test_slow_bodies_without_a_key_take_places_of_their_address(embedded: World) -> None:
    async with narrow(embedded) as (site, desk), slow_bodies(site, 2 * PLACES):
        await eventually(lambda: desk.requests.count == PLACES // 2)
        answer = await site.client.get("/v1/tasks")
        assert answer.status_code == 429
        assert desk.requests.count == PLACES // 2


async def test_probes_are_answered_however_many_bodies_are_slow(embedded: World) -> None:
    async with narrow(embedded) as (site, desk), slow_bodies(site, 2 * PLACES):
        await eventually(lambda: desk.requests.count == PLACES // 2)
        for path in ("/healthz", "/metrics"):
            assert (await site.client.get(path)).status_code == 200, path
        # Whether a server is ready whose clock stands is another question.
        assert (await site.client.get("/readyz")).status_code in {200, 503}
        assert desk.probes.count == 0


async def test_a_body_that_does_not_arrive_in_time_is_refused(
    embedded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MESSAGE_MS", 50)
    async with narrow(embedded) as (site, desk), slow_bodies(site, 5) as begun:
        assert await status_of(begun) == [b"408"] * 5
        answer = (await begun[0][0].read(10_000)).decode()
        assert '"error":"deadline_exceeded"' in answer
        assert desk.requests.count == 0


async def test_slow_bodies_are_no_work_that_keeps_new_work_out(small: Site) -> None:
    async with slow_bodies(small, limits.NEW_WORK_OPEN_START + 50):
        for _ in range(3):
            assert (await small.client.post("/v1/tasks", json=TASK)).status_code == 201
