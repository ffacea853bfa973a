"""The gRPC edge on an engine of both stores, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenure.engine.engine import Engine
from tests.api.rpc.wire import Wire, open_wire
from tests.engine.conftest import dialect, engine, world

__all__ = ["dialect", "engine", "world"]


@pytest.fixture
async def wire(engine: Engine) -> AsyncIterator[Wire]:
    async with open_wire(engine) as made:
        yield made
