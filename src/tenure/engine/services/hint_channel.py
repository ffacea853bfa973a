"""Listens again for hints of other servers, after the connection for it was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engine.service import Report

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class HintChannel:
    """Checks whether the connection exists; a server that only listens would never notice."""

    name = "hint_channel"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the check."""
        return engine.settings.fallback_poll_ms

    async def run_once(self, engine: Engine) -> Report:
        """Listen, if the server does not."""
        await engine.store.listen_again()
        return Report()
