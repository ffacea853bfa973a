"""A real server in this process for each test, whose clock the test moves, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenure import Client
from tenure.testing import TestEngine, open_engine


@pytest.fixture
async def engine() -> AsyncIterator[TestEngine]:
    async with open_engine(patience="200ms") as made:
        yield made


@pytest.fixture
async def client(engine: TestEngine) -> AsyncIterator[Client]:
    async with engine.client() as made:
        yield made
