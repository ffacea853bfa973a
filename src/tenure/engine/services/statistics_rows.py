"""Writes what this server has counted in each minute: a row per queue where something happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import STATISTICS_STEP_MS
from tenure.engine.service import Report
from tenure.store.table.statistics import MinuteRow, save_minutes
from tenure.store.transaction import LaneName

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class StatisticsRows:
    """Keeps for a week what is in memory for an hour; a server that ends loses its last minute."""

    name = "statistics_rows"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval."""
        del engine
        return STATISTICS_STEP_MS

    async def run_once(self, engine: Engine) -> Report:
        """Write the minutes that are over."""
        end_ms, minutes = engine.statistics.unwritten()
        rows = [
            MinuteRow(namespace, queue, at_ms, engine.server_id, body)
            for (at_ms, namespace, queue), body in sorted(minutes.items())
        ]
        if rows:
            await engine.store.transaction(lambda tx: save_minutes(tx, rows), LaneName.SERVICE)
        engine.statistics.written(end_ms)
        return Report(len(rows))
