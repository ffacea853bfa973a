"""Claims for waiting offers even without a hint about work: hints may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engine.service import Report

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class ClaimFallback:
    """Lets every waiting offer claim."""

    name = "claim_fallback"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the fallback; without hints it is the only way to find work."""
        settings = engine.settings
        if engine.store.is_listening or not engine.store.is_shared:
            return settings.fallback_poll_ms
        return min(settings.fallback_poll_ms, settings.news_poll_ms)

    async def run_once(self, engine: Engine) -> Report:
        """Read every queue for which an offer waits."""
        engine.look_for_work()
        return Report()
