"""An engine with served workers in memory, whose calls are made by the test, on both stores."""

from __future__ import annotations

import pytest

from tests.engine.conftest import dialect, world
from tests.engine.seat.served import ServedWorld
from tests.engine.world import NEVER_MS, World

__all__ = ["dialect", "world"]


@pytest.fixture
async def served(world: World) -> ServedWorld:
    engine = await world.start(served_call_gap_ms=NEVER_MS, served_tick_ms=NEVER_MS)
    made = ServedWorld(world, engine)
    await made.open()
    return made
