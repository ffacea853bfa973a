"""A disk that is really full: the server says so, goes on to read, and recovers by itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from tenure.api.http.edge.app import make_app
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Store
from tests.api.http.site import client_of, serving
from tests.disk import SmallDisk, small_disk
from tests.polling import eventually
from tests.postgres import UNPRIVILEGED_ID, PostgresServer

SIZE_MIB = 48
LARGE = "x" * 1_500_000


@asynccontextmanager
async def sqlite_disk(folder: Path) -> AsyncIterator[tuple[Store, SmallDisk]]:
    with small_disk(folder / "disk", size_mib=SIZE_MIB, owner=os.geteuid()) as disk:
        yield SqliteStore(str(disk.folder / "tenure.db"), clock=SystemClock().now_ms), disk


@asynccontextmanager
async def postgres_disk(_: Path) -> AsyncIterator[tuple[Store, SmallDisk]]:
    """Use a server whose database is on the small disk, and whose log is not."""
    owner = UNPRIVILEGED_ID if os.geteuid() == 0 else os.geteuid()
    with (
        PostgresServer.start() as server,
        small_disk(server.folder / "disk", size_mib=SIZE_MIB, owner=owner) as disk,
    ):
        admin = await asyncpg.connect(server.dsn())
        await admin.execute(f"CREATE TABLESPACE small LOCATION '{disk.folder}'")
        await admin.execute("CREATE DATABASE small TABLESPACE small")
        await admin.close()
        yield PostgresStore(server.dsn("small")), disk
        server.stop("immediate")


@pytest.mark.parametrize("open_disk", [sqlite_disk, postgres_disk])
async def test_a_server_is_not_ready_while_its_disk_is_full_and_recovers_by_itself(
    tmp_path: Path,
    open_disk: Callable[[Path], AbstractAsyncContextManager[tuple[Store, SmallDisk]]],
) -> None:
    async with open_disk(tmp_path) as (store, disk), Engine(store, clock=SystemClock()) as engine:
        app = make_app(engine, ServerSettings(), Readiness(engine))
        async with serving(app) as port, client_of(port) as client:

            async def ready() -> tuple[int, str | None]:
                answer = await client.get("/readyz")
                return answer.status_code, answer.json().get("reason")

            async def is_ready() -> bool:
                return await ready() == (200, None)

            async def enqueue() -> httpx.Response:
                body = {"type": "t", "queue": "q", "startToCloseMs": 1_000, "input": LARGE}
                return await client.post("/v1/tasks", json=body)

            await eventually(is_ready)
            stored = (await enqueue()).json()["taskId"]
            disk.fill()
            refused = await enqueue()
            assert (refused.status_code, refused.json()["reason"]) == (503, "storage_full")
            # Services go on to commit small rows all the time, and try whether there is space.
            for _ in range(3):
                await asyncio.sleep(1)
                assert await ready() == (503, "storage_full")
            assert (await client.get(f"/v1/tasks/{stored}")).status_code == 200
            disk.clear()
            await eventually(is_ready)
            assert (await enqueue()).status_code == 201
            assert await ready() == (200, None)
