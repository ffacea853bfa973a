"""A site per test, on both stores unless the test asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.http.site import Site, site_of
from tests.engine.conftest import dialect, world
from tests.engine.world import Clock, World, open_database

__all__ = ["dialect", "world"]


@pytest.fixture
async def site(world: World) -> AsyncIterator[Site]:
    """A server on either store, whose clock stands."""
    async with site_of(world, await world.start()) as made:
        yield made


@pytest.fixture
async def embedded() -> AsyncIterator[World]:
    """A world on SQLite alone: for what never reaches a store."""
    clock = Clock()
    async with open_database("sqlite", clock) as database:
        made = World(database, clock)
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
async def small(embedded: World) -> AsyncIterator[Site]:
    """A server on SQLite."""
    async with site_of(embedded, await embedded.start()) as made:
        yield made
