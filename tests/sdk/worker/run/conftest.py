"""A server per test, and runs in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sdk.worker.rig import FAST, open_rig
from tests.sdk.worker.run.stage import RunStage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RunStage]:
    async with open_rig(tmp_path) as rig:
        yield RunStage(rig)


@pytest.fixture
async def fast(tmp_path: Path) -> AsyncIterator[RunStage]:
    async with open_rig(tmp_path, **FAST) as rig:
        yield RunStage(rig)
