"""Touches this server's row: the probe that keeps it sighted, and a sign of life for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engine.service import Report
from tenure.engine.worker import command as c

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class ServerTouch:
    """Commits on the heartbeat lane more often than a server may be silent."""

    name = "server_row"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the probe."""
        return engine.settings.probe_ms

    async def run_once(self, engine: Engine) -> Report:
        """Touch the row."""
        await engine.submit(c.TouchServer(server_id=engine.server_id))
        return Report(1)
