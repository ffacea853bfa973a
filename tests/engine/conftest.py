"""A world per test, on both stores unless the test asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenure.engine.engine import Engine
from tests.engine.world import Clock, World, open_database


@pytest.fixture(params=["sqlite", "postgres"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Name the store."""
    return str(request.param)


@pytest.fixture
async def world(dialect: str) -> AsyncIterator[World]:
    clock = Clock()
    async with open_database(dialect, clock) as database:
        made = World(database, clock)
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
async def engine(world: World) -> Engine:
    return await world.start()
