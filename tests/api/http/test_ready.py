"""``/readyz``: false while the store is away, and back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tenure.api.http.edge.app import make_app
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.store.postgres import PostgresStore
from tests.api.http.site import Site, client_of, serving
from tests.polling import eventually
from tests.postgres import PostgresServer


async def test_the_process_is_up_before_it_is_ready(small: Site) -> None:
    assert await small.call("GET", "/healthz") == {"status": "up"}
    # No service probes this engine's store, so it has not been heard of yet.
    refused = await small.refused("GET", "/readyz")
    assert refused == (503, "unavailable", {"reason": "starting", "retryAfterMs": 1_000})
    assert (await small.client.get("/readyz")).headers["retry-after"] == "1"


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of this test alone, because it is stopped."""
    with PostgresServer.start() as server:
        yield server


async def test_a_server_is_not_ready_while_its_store_is_away(own_postgres: PostgresServer) -> None:
    store = PostgresStore(own_postgres.dsn(own_postgres.create_database()))
    async with Engine(store, clock=SystemClock()) as engine:
        app = make_app(engine, ServerSettings(), Readiness(engine))
        async with serving(app) as port, client_of(port) as client:

            async def status(path: str = "/readyz") -> int:
                async with asyncio.timeout(2):
                    return (await client.get(path)).status_code

            async def is_ready() -> bool:
                return await status() == 200

            async def is_away() -> bool:
                return await status() == 503

            await eventually(is_ready)
            own_postgres.stop("immediate")
            await eventually(is_away)
            assert await status("/healthz") == 200
            answer = await client.get("/v1/tasks")
            assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
            assert int(answer.headers["retry-after"]) >= 1
            own_postgres.resume()
            await eventually(is_ready)
            assert await status("/v1/tasks") == 200
