"""Checks whether there is space again after the storage was full: no other write may come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import SPACE_PROBE_BYTES, SPACE_PROBE_MS
from tenure.engine.service import Report
from tenure.store.table import server as server_table
from tenure.store.transaction import LaneName

if TYPE_CHECKING:
    from tenure.engine.engine import Engine
    from tenure.store.transaction import Tx


class SpaceWatch:
    """Stores as much as a large task needs, and deletes it again."""

    name = "space_watch"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the check."""
        del engine
        return SPACE_PROBE_MS

    async def run_once(self, engine: Engine) -> Report:
        """Try, if the last batch found no space."""
        if not engine.acceptance.has_no_space:
            return Report()
        # Random, so that no database compresses it.
        body = engine.clock.random_bytes(SPACE_PROBE_BYTES)

        async def fill(tx: Tx) -> None:
            await server_table.free_space(tx)
            await server_table.reserve_space(tx, body)

        await engine.store.transaction(fill, LaneName.SERVICE)
        await engine.store.transaction(server_table.free_space, LaneName.SERVICE)
        engine.acceptance.found_space()
        return Report(1)
