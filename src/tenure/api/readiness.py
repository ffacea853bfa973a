"""Whether this server can work now: from recent commits, never by a call that can hang."""

from __future__ import annotations

import asyncio
from typing import Final

from tenure.engine.engine import Engine

# Several probes of the heartbeat lane, so that one slow commit is not an outage.
_SILENCE_MS: Final = 2_000


class Readiness:
    """Checks when the heartbeat lane committed last, and whether the work lane can store work.

    Probes and services do both even when a server is idle.
    """

    def __init__(self, engine: Engine) -> None:
        """Check ``engine``."""
        self._engine = engine
        self.stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop being ready, so that no new requests are sent here."""
        self.stopping.set()

    def problem(self) -> str | None:
        """Return why the server cannot work, or ``None``."""
        if self.stopping.is_set():
            return "shutting_down"
        judge_readiness = self._engine.judge_readiness
        if judge_readiness is None:
            return "starting"
        silent_ms = self._engine.clock.monotonic_ms() - judge_readiness.committed_at_mono_ms
        return self._engine.acceptance.problem or (
            "store_away" if silent_ms > _SILENCE_MS else None
        )
