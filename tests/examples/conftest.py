"""One server process for all examples, and a copy of their files for each test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tenure import Client, SyncClient
from tenure.testing import TestEngine, open_engine
from tests.cli.server import ServerProcess
from tests.examples.stage import FOLDER, Stage


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "tenure.db"


@pytest.fixture(scope="session")
def server(store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(f"sqlite:///{store}", store.with_name("log")) as process:
        yield process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The examples where a user would have them."""
    return Path(shutil.copytree(FOLDER, tmp_path / "project", ignore=shutil.ignore_patterns("__*")))


@pytest.fixture
def stage(folder: Path, server: ServerProcess) -> Stage:
    return Stage(folder, server.grpc)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[SyncClient]:
    with SyncClient(server.grpc) as made:
        yield made


@pytest.fixture
async def engine() -> AsyncIterator[TestEngine]:
    """A server whose clock the test moves, for what takes long."""
    async with open_engine(patience="200ms") as made:
        yield made


@pytest.fixture
async def engine_client(engine: TestEngine) -> AsyncIterator[Client]:
    async with engine.client() as made:
        yield made
