from __future__ import annotations

import asyncio
from pathlib import Path

from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.store.sqlite import SqliteStore


async def test_a_server_that_is_about_to_stop_judges_nobody(tmp_path: Path) -> None:
    clock = SystemClock()
    store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock.now_ms)
    async with Engine(store, clock=clock) as engine:
        async with asyncio.timeout(10):
            while engine.sighted_ms == 0:  # noqa: ASYNC110 (of a background service)
                await asyncio.sleep(0.01)
        engine.end_polls()
        assert engine.sighted_ms == 0
