"""A lobby per test, on both stores unless the test asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.access.keyed_server import KeyedServer, open_lobby
from tests.api.http.conftest import embedded
from tests.engine.conftest import dialect, world
from tests.engine.world import World

__all__ = ["dialect", "embedded", "world"]


@pytest.fixture
async def lobby(world: World) -> AsyncIterator[KeyedServer]:
    async with open_lobby(world) as made:
        yield made


@pytest.fixture
async def small(embedded: World) -> AsyncIterator[KeyedServer]:
    """One on SQLite: for what never reaches a store."""
    async with open_lobby(embedded) as made:
        yield made
