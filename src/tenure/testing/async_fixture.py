"""The fixture of the async client, for pytest-asyncio in both of its modes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from tenure.sdk.client import Client
    from tenure.testing.engine import TestEngine


@pytest_asyncio.fixture
async def tenure_client(tenure_engine: TestEngine) -> AsyncIterator[Client]:
    """A client of the server of ``tenure_engine``."""
    async with tenure_engine.client() as client:
        yield client
