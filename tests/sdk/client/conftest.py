"""A real server and a client per test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure import Client
from tests.postgres import PostgresServer
from tests.sdk.client.stage import RawWorker, ServerStage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[ServerStage]:
    """A server on SQLite."""
    async with ServerStage(f"sqlite:///{tmp_path}/tenure.db") as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
async def any_stage(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer
) -> AsyncIterator[ServerStage]:
    """A server on either store."""
    url = f"sqlite:///{tmp_path}/tenure.db"
    if request.param == "postgres":
        url = postgres.dsn(await asyncio.to_thread(postgres.create_database))
    async with ServerStage(url) as made:
        yield made


@pytest.fixture
async def client(stage: ServerStage) -> AsyncIterator[Client]:
    async with Client(stage.target) as made:
        yield made


@pytest.fixture
async def worker(stage: ServerStage) -> AsyncIterator[RawWorker]:
    async with RawWorker(stage.target) as made:
        yield made
