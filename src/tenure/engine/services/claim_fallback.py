"""Claims for waiting offers even if nobody told of work: hints may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engine.service import Report

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class ClaimFallback:
    """Lets every waiting offer look for work."""

    name = "claim_fallback"

    def interval_ms(self, engine: Engine) -> int:
        """Return the pace of the fallback; where nobody can tell of work it is the only way."""
        settings = engine.settings
        if engine.store.is_listening or not engine.store.is_shared:
            return settings.fallback_poll_ms
        return min(settings.fallback_poll_ms, settings.news_poll_ms)

    async def run_once(self, engine: Engine) -> Report:
        """Touch every queue for which somebody waits."""
        engine.look_for_work()
        return Report()
