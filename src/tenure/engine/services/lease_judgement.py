"""Judges leases: takes workers offline that sent no heartbeat for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import JUDGED_BATCH_MAX
from tenure.engine.service import Report
from tenure.engine.worker import command as c

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class LeaseJudgement:
    """Scans the leases each second and when a grace ends, after waiting reports are handled."""

    name = "lease_judgement"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the scan."""
        return engine.settings.judge_ms

    async def run_once(self, engine: Engine) -> Report:
        """Handle waiting heartbeats, then judge."""
        engine.grace_alarm.clear_past(engine.clock.monotonic_ms())
        await engine.submit(c.TouchServer(server_id=engine.server_id))
        sighted_ms = engine.sighted_ms
        if sighted_ms == 0:
            return Report()
        command = c.JudgeLeases(
            sighted_ms=sighted_ms,
            amount=JUDGED_BATCH_MAX,
            suspect_grace_ms=engine.settings.suspect_grace_ms,
            judge_readiness=engine.judge_readiness,
        )
        done = await engine.submit(command)
        return Report(done.count, has_more=done.has_more)
