"""Forgets what is old: history, ended attempts, idempotency keys, audit, workers, servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import DAY_MS, DAYS_AHEAD, RETENTION_BATCH_MAX
from tenure.engine.service import Report
from tenure.store.transaction import LaneName

if TYPE_CHECKING:
    from tenure.engine.engine import Engine
    from tenure.store.transaction import Tx


class Retention:
    """Drops whole days where there are partitions, deletes bounded batches elsewhere."""

    name = "retention"

    def interval_ms(self, engine: Engine) -> int:
        """Return how often it looks."""
        return engine.settings.retention_ms

    async def run_once(self, engine: Engine) -> Report:
        """Make room for the days to come and forget one batch of each kind."""
        settings = engine.settings

        async def body(tx: Tx) -> int:
            now_ms = await tx.now_ms()
            today = now_ms // DAY_MS
            for day in range(today, today + DAYS_AHEAD + 1):
                await tx.one("ensure_days", day)
            await tx.one("drop_days", (now_ms - settings.history_kept_ms) // DAY_MS)
            amount = RETENTION_BATCH_MAX
            gone = await tx.one("delete_history", now_ms - settings.history_kept_ms, amount)
            keys = await tx.one("delete_old_keys", now_ms - settings.key_kept_ms, amount)
            workers = await tx.one(
                "delete_offline_workers",
                now_ms - settings.offline_kept_ms,
                amount,
            )
            await tx.one("delete_servers", now_ms - settings.offline_kept_ms)
            records = await tx.one("delete_audit", now_ms - settings.audit_kept_ms, amount)
            return max(len(gone), len(keys), len(workers), len(records))

        most = await engine.store.transaction(body, LaneName.SERVICE)
        return Report(most, has_more=most >= RETENTION_BATCH_MAX)
