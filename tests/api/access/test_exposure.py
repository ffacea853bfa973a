"""The start rule: an address that others can reach is served with keys, or with open eyes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from tenure.api.server import Server
from tenure.api.setting import Address, ServerSettings
from tenure.core.access.api_key import Role
from tenure.engine.access import command as c
from tenure.engine.clock import SystemClock
from tenure.errors import InvalidArgument
from tenure.store.sqlite import SqliteStore

NEAR = Address("127.0.0.1", 0)
FAR = Address("0.0.0.0", 0)  # noqa: S104 (that is the question)


@asynccontextmanager
async def serving(path: Path, **changes: Any) -> AsyncIterator[Server]:
    clock = SystemClock()
    settings = ServerSettings(**{"http": NEAR, "grpc": NEAR, "shutdown_ms": 400, **changes})
    store = SqliteStore(str(path / "tenure.db"), clock=clock.now_ms)
    server = Server(store, settings, clock=clock)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def make_key(server: Server, role: Role, *namespaces: str) -> str:
    command = c.CreateKey(name="n", role=role, namespaces=namespaces)
    made = await server.engine.submit(command)
    assert isinstance(made, c.CreatedKey)
    return made.key.id


@pytest.mark.parametrize("field", ["http", "grpc"])
async def test_without_an_admin_key_only_this_machine_is_served(tmp_path: Path, field: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        async with serving(tmp_path, **{field: FAR}):
            pass
    assert refusal.value.fields == {"field": field}
    assert "tenure keys create --role admin --store URL" in refusal.value.message
    # It let go of the store and of its ports.
    async with serving(tmp_path) as server:
        await make_key(server, Role.WORKER)
        await make_key(server, Role.ADMIN, "default/default")
    # Nobody could administer everything with these.
    with pytest.raises(InvalidArgument):
        async with serving(tmp_path, **{field: FAR}):
            pass


async def test_with_a_live_admin_key_everybody_may_knock(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        key_id = await make_key(server, Role.ADMIN)
    async with serving(tmp_path, http=FAR, grpc=FAR) as server:
        assert server.warning == ""
        await server.engine.submit(c.RevokeKey(key_id=key_id))
    with pytest.raises(InvalidArgument):
        async with serving(tmp_path, http=FAR):
            pass


async def test_an_insecure_server_says_loudly_that_it_is_one(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving(tmp_path, http=FAR, is_insecure=True) as server:
            assert "Everybody who can reach 0.0.0.0:0 can do everything" in server.warning
            await make_key(server, Role.VIEWER)
    said = [each["log_level"] for each in logs if each["event"] == "server.open_to_all"]
    assert said == ["warning"]
    # Keys are enforced from the first one on, whatever else is said.
    async with serving(tmp_path, http=FAR, is_insecure=True) as server:
        assert server.warning == ""
        assert server.engine.access_cache.has_keys


@pytest.mark.parametrize(
    ("host", "is_near"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
        ("10.0.0.1", False),
        ("example.com", False),
    ],
)
def test_what_only_this_machine_reaches(host: str, *, is_near: bool) -> None:
    settings = ServerSettings(http=Address(host, 1), is_insecure=True)
    assert bool(settings.exposed) != is_near
