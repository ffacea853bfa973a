"""The pytest plugin: fixtures with a server for each test that asks for one.

pytest loads it in every project that has Tenure installed. So it imports nothing of Tenure until a
fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tenure.sdk.sync_client import SyncClient
    from tenure.testing.engine import TestEngine
    from tenure.testing.journals import JournalChecker
    from tenure.testing.sync_engine import SyncTestEngine


def pytest_configure(config: pytest.Config) -> None:
    """Add the fixture of the async client, in the form that the async plugin at hand takes."""
    manager = config.pluginmanager
    has_asyncio = any(manager.hasplugin(name) for name in ("asyncio", "pytest_asyncio.plugin"))
    if has_asyncio and not manager.hasplugin("tenure_async"):
        from tenure.testing import async_fixture  # noqa: PLC0415 (needs pytest-asyncio)

        manager.register(async_fixture, "tenure_async")


@pytest.fixture
def tenure_engine() -> Iterator[TestEngine]:
    """A real server with a manual clock, for async tests; belongs to no event loop."""
    from tenure.testing.engine import TestEngine  # noqa: PLC0415 (loads the server)

    engine = TestEngine()
    engine.open()
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def tenure_sync_engine() -> Iterator[SyncTestEngine]:
    """A real server with a manual clock, for tests without an event loop."""
    from tenure.testing.sync_engine import open_sync_engine  # noqa: PLC0415 (loads the server)

    with open_sync_engine() as engine:
        yield engine


@pytest.fixture
def tenure_sync_client(tenure_sync_engine: SyncTestEngine) -> Iterator[SyncClient]:
    """A client of the server of ``tenure_sync_engine``."""
    with tenure_sync_engine.client() as client:
        yield client


@pytest.fixture
def check_journals(request: pytest.FixtureRequest) -> JournalChecker:
    """A function that checks exported journals against the workflows of the test's module."""
    from tenure.testing.journals import JournalChecker  # noqa: PLC0415 (loads the SDK)

    return JournalChecker(request.config.rootpath, request.module)
