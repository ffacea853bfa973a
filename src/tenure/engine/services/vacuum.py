"""Vacuums the live table after many finished tasks: autovacuum comes too late for a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engine.service import Report
from tenure.store.table.server import VACUUM_TASKS

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

INTERVAL_MS = 250


class Vacuum:
    """Counts the tasks that this server finished, and vacuums."""

    name = "vacuum"

    def __init__(self) -> None:
        """Start counting."""
        self._vacuumed_at_count = 0

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the count."""
        del engine
        return INTERVAL_MS

    async def run_once(self, engine: Engine) -> Report:
        """Vacuum if enough tasks were finished since the last time."""
        settings = engine.settings
        finished = engine.finished_count - self._vacuumed_at_count
        if not settings.own_vacuum or finished < settings.vacuum_every_tasks:
            return Report()
        self._vacuumed_at_count = engine.finished_count
        await engine.store.maintain(VACUUM_TASKS)
        return Report(finished)
