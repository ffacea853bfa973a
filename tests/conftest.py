"""Fixtures for all tests."""

import pytest

from tests.postgres import PostgresServer, shared


@pytest.fixture(scope="session")
def postgres() -> PostgresServer:
    """Return the PostgreSQL server of this test process; each test makes its own database."""
    return shared()
