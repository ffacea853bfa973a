"""A server per test, with leases that do not end by themselves unless the test asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sdk.worker.rig import FAST, Rig, open_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as made:
        yield made


@pytest.fixture
async def fast(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path, **FAST) as made:
        yield made
