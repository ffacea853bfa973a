"""Listens again for what other servers tell, after the connection for it was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engine.service import Report

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class HintChannel:
    """Looks whether the connection is there; a server that only listens would never notice."""

    name = "hint_channel"

    def interval_ms(self, engine: Engine) -> int:
        """Return how often it looks."""
        return engine.settings.fallback_poll_ms

    async def run_once(self, engine: Engine) -> Report:
        """Listen, unless that is so."""
        await engine.store.listen_again()
        return Report()
