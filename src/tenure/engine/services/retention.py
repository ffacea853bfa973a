"""Removes old rows, each kind when nobody needs it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import DAY_MS, DAYS_AHEAD, RETENTION_BATCH_MAX, STATISTICS_KEPT_MS
from tenure.engine.service import Report
from tenure.store.table import retention as table
from tenure.store.table.statistics import delete_minutes
from tenure.store.table.worker_change import delete_changes
from tenure.store.transaction import LaneName

if TYPE_CHECKING:
    from tenure.engine.engine import Engine
    from tenure.store.transaction import Tx


class Retention:
    """Drops whole days where there are partitions, deletes bounded batches elsewhere."""

    name = "retention"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval."""
        return engine.settings.retention_ms

    async def run_once(self, engine: Engine) -> Report:
        """Create partitions for the next days and remove one batch of each kind."""
        settings = engine.settings

        async def body(tx: Tx) -> int:
            now_ms = await tx.now_ms()
            history_ms = now_ms - settings.history_kept_ms
            offline_ms = now_ms - settings.offline_kept_ms
            today = now_ms // DAY_MS
            first, last = history_ms // DAY_MS, today + DAYS_AHEAD
            await table.keep_days(tx, first=first, today=today, last=last)
            counts = []
            for delete, before_ms in (
                (table.delete_journals, history_ms),
                (table.delete_groups, history_ms),
                (table.delete_history, history_ms),
                (table.delete_fires, history_ms),
                (table.delete_old_keys, now_ms - settings.key_kept_ms),
                (table.delete_offline_workers, offline_ms),
                (delete_changes, history_ms),
                (delete_minutes, now_ms - STATISTICS_KEPT_MS),
                (table.delete_audit, now_ms - settings.audit_kept_ms),
            ):
                counts.append(await delete(tx, before_ms=before_ms, amount=RETENTION_BATCH_MAX))
            await table.delete_servers(tx, before_ms=offline_ms)
            return max(counts)

        most = await engine.store.transaction(body, LaneName.SERVICE)
        return Report(most, has_more=most >= RETENTION_BATCH_MAX)
