"""A stage for each module, and a lobby for each test that changes more than its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.api.access.keyed_server import KeyedServer, open_lobby
from tests.api.http.conftest import embedded
from tests.engine.world import World
from tests.security.stage import Stage, open_stage

__all__ = ["embedded"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with open_stage() as made:
        yield made


@pytest.fixture
async def lobby(embedded: World) -> AsyncIterator[KeyedServer]:
    """A server of both edges without a key."""
    async with open_lobby(embedded) as made:
        yield made
