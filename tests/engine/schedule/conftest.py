"""An engine whose workers are not late after minutes without a heartbeat."""

from __future__ import annotations

import pytest

from tenure.engine.engine import Engine
from tests.engine.world import DAY_MS, World


@pytest.fixture
async def engine(world: World) -> Engine:
    return await world.start(poll_lease_ms=DAY_MS, lease_most_ms=DAY_MS)
