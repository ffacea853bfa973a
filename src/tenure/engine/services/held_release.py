"""Puts back tasks of offline workers, even if the server that judged them is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import RELEASE_BATCH_MAX
from tenure.engine.service import Report
from tenure.engine.worker import command as c
from tenure.store.table import worker as worker_table

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

WORKERS_MAX = 20


class HeldRelease:
    """Finishes releases that were started but not ended: a crash in between loses nothing."""

    name = "held_release"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval; a release normally starts with the judgement itself."""
        return engine.settings.judge_ms

    async def run_once(self, engine: Engine) -> Report:
        """Release one batch of each worker that still has tasks."""
        workers = await engine.store.read(
            lambda tx: worker_table.load_releasing(tx, amount=WORKERS_MAX)
        )
        count = 0
        for worker_id in workers:
            count += await _release(engine, worker_id)
        return Report(count, has_more=bool(count))


async def _release(engine: Engine, worker_id: str) -> int:
    """Release a batch; tasks that stay with the worker for now are not counted."""
    kept_count = 0
    while True:
        amount = RELEASE_BATCH_MAX + kept_count
        command = c.ReleaseHeldTasks(worker_id=worker_id, amount=amount)
        done = await engine.submit(command)
        if done.count or not done.has_more:
            return done.count
        kept_count = done.kept_count
