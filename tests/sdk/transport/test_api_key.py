"""Clients and workers with an API key: it is sent, never shown, and its end is survived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure import Client, SyncClient, Worker, activity
from tenure.api.server import Server
from tenure.api.setting import Address, ServerSettings
from tenure.core.access.api_key import Role
from tenure.engine.access import command as c
from tenure.engine.clock import SystemClock
from tenure.engine.read import query
from tenure.engine.settings import Settings
from tenure.errors import NotFound, PermissionDenied, Unauthenticated
from tenure.store.sqlite import SqliteStore
from tests.bounds import WAIT_S
from tests.polling import eventually

FAST = Settings(lease_least_ms=1, session_lease_ms=2_000, poll_lease_ms=2_000, judge_ms=50)


class House:
    """One server, and the keys to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.target = str(server.grpc_address)

    async def make_key(self, role: Role, *namespaces: str) -> str:
        command = c.CreateKey(name="n", role=role, namespaces=namespaces)
        made = await self.server.engine.submit(command)
        return made.text.reveal()

    async def revoke(self, key: str) -> None:
        await self.server.engine.submit(c.RevokeKey(key_id=key.split("_")[1]))

    async def worker_status(self, worker_id: str) -> str:
        view = await query.get_worker(
            self.server.engine.store, namespace="default/default", worker_id=worker_id
        )
        return view.worker.status


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    clock = SystemClock()
    near = Address("127.0.0.1", 0)
    server = Server(
        SqliteStore(str(tmp_path / "tenure.db"), clock=clock.now_ms),
        ServerSettings(http=near, grpc=near, shutdown_ms=400),
        clock=clock,
        engine_settings=FAST,
    )
    await server.start()
    try:
        yield House(server)
    finally:
        await server.stop()


@activity(start_to_close="10m")
def double(number: int) -> int:
    return 2 * number


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    running = asyncio.create_task(worker.run(handle_signals=False))
    try:
        yield running
    finally:
        await worker.shutdown("1ms")
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_work_is_done_with_keys_of_the_right_roles(house: House, mode: Any) -> None:
    client_key, worker_key = await house.make_key(Role.CLIENT), await house.make_key(Role.WORKER)
    worker = Worker(house.target, activities=[double], api_key=worker_key, mode=mode)
    async with working(worker), Client(house.target, api_key=client_key) as client:
        assert await client.run(double, 21) == 42


async def test_the_key_may_come_from_the_environment(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_API_KEY", await house.make_key(Role.ADMIN) + "\n")
    async with working(Worker(house.target, activities=[double])), Client(house.target) as client:
        assert await client.run(double, 1) == 2
    async with Client(house.target, api_key="") as client:
        with pytest.raises(Unauthenticated):
            await client.enqueue(double, 1)


async def test_a_client_is_told_what_its_key_is_not_for(house: House) -> None:
    await house.server.engine.submit(c.CreateNamespace(name="acme/default"))
    viewer = await house.make_key(Role.VIEWER, "acme/default")
    async with Client(house.target, api_key=viewer, namespace="acme") as client:
        with pytest.raises(PermissionDenied):
            await client.enqueue(double, 1)
    async with Client(house.target, api_key=viewer) as client:
        with pytest.raises(NotFound):
            await anext(client.list())


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_a_worker_whose_key_is_refused_at_its_start_fails(house: House, mode: Any) -> None:
    good = await house.make_key(Role.WORKER)
    client = await house.make_key(Role.CLIENT)
    wrong = good[:-4] + "nope"
    for key, error in ((wrong, Unauthenticated), (client, PermissionDenied)):
        worker = Worker(house.target, activities=[double], api_key=key, mode=mode)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(error) as refusal:
                await worker.run(handle_signals=False)
        assert key not in str(refusal.value)


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_a_worker_whose_key_ends_keeps_what_it_holds_and_goes_on_trying(
    house: House, caplog: pytest.LogCaptureFixture, mode: Any
) -> None:
    client_key, worker_key = await house.make_key(Role.CLIENT), await house.make_key(Role.WORKER)
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @activity(start_to_close="10m")
    async def wait() -> str:
        begun.set()
        await go_on.wait()
        ended.set()
        return "done"

    worker = Worker(house.target, activities=[wait], api_key=worker_key, mode=mode)
    caplog.set_level(logging.WARNING, "tenure.worker")
    async with Client(house.target, api_key=client_key) as client:
        async with working(worker) as running:
            await client.enqueue(wait)
            async with asyncio.timeout(WAIT_S):
                await begun.wait()
            worker_id = worker.worker_id
            await house.revoke(worker_key)
            await eventually(lambda: "keeps its tasks" in caplog.text)
            # Its work is not stopped, and the server treats it like any worker that was lost.
            await until_offline(house, worker_id)
            go_on.set()
            async with asyncio.timeout(WAIT_S):
                await ended.wait()
            assert not running.done()
            # Asked to stop, it does not wait for a server that will never take its report.
            worker.request_shutdown("5m")
            async with asyncio.timeout(WAIT_S):
                with pytest.raises(Unauthenticated, match="its API key is refused"):
                    await running
        (info,) = [each async for each in client.list()]
        assert info.state == "pending"
    secret = worker_key.split("_", 2)[2]
    assert secret not in caplog.text


async def until_offline(house: House, worker_id: str) -> None:
    async def is_offline() -> bool:
        return await house.worker_status(worker_id) == "offline"

    await eventually(is_offline)


def test_a_key_is_never_shown() -> None:
    key = f"tnr_{'a' * 16}_{'s' * 43}"
    for made in (
        Client(api_key=key),
        SyncClient(api_key=key),
        Worker(activities=[double], api_key=key),
    ):
        assert "ssss" not in repr(made)
    for bad in ("tnr_\n_x" + "s" * 9, "schlüssel" + "s" * 9, "two words" + "s" * 9):
        for make in (Client, SyncClient):
            with pytest.raises(ValueError, match="The API key is malformed") as refusal:
                make(api_key=bad)
            assert "ssss" not in str(refusal.value)
