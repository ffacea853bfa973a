from __future__ import annotations

from pathlib import Path

from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.store.sqlite import SqliteStore
from tests.polling import eventually


async def test_a_server_that_is_about_to_stop_judges_nobody(tmp_path: Path) -> None:
    clock = SystemClock()
    store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock.now_ms)
    async with Engine(store, clock=clock) as engine:
        await eventually(lambda: engine.sighted_ms, "the first look at leases")
        engine.end_polls()
        assert engine.sighted_ms == 0
