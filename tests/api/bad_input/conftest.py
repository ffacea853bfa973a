"""A stand for each module: what is refused changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.bad_input.both_edges import BothEdges, open_stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand() -> AsyncIterator[BothEdges]:
    """Both edges of one server."""
    async with open_stand() as made:
        yield made
