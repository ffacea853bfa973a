"""Handles tasks whose timer has fired; ``decide`` checks the row again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import DUE_BATCH_MAX
from tenure.engine.service import Report
from tenure.engine.task import command as c
from tenure.store.table import task as task_table

if TYPE_CHECKING:
    from tenure.engine.engine import Engine
    from tenure.store.transaction import Tx

# A due row that another server handles is not read again without a pause.
PAUSE_MS = 20


class DueTasks:
    """Takes due rows in bounded batches; wakes with the engine's alarm."""

    name = "due_tasks"

    def interval_ms(self, engine: Engine) -> int:
        """Return the fallback interval for timers that other servers set."""
        return engine.settings.fallback_poll_ms

    async def run_once(self, engine: Engine) -> Report:
        """Process one batch of fired timers, then read the next instant."""
        engine.alarm.clear()
        command = c.ProcessDue(
            sighted_ms=engine.sighted_ms,
            amount=DUE_BATCH_MAX,
            judge_readiness=engine.judge_readiness,
        )
        done = await engine.submit(command)
        if not done.has_more:
            in_ms = await engine.store.read(_next_due)
            if in_ms is not None:
                engine.alarm.set(max(in_ms, PAUSE_MS), engine.clock.monotonic_ms())
        return Report(done.count, has_more=done.has_more)


async def _next_due(tx: Tx) -> int | None:
    """Return how long it is until the nearest due instant."""
    due_at_ms = await task_table.next_due_ms(tx)
    return None if due_at_ms is None else due_at_ms - await tx.now_ms()
