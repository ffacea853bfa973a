"""Reads values of the store for the metrics, at its own interval and never for a scrape."""

from __future__ import annotations

import asyncio

import structlog

from tenure.api.metrics.metric import Metrics
from tenure.core.limits import SAMPLE_BUDGET, SAMPLE_MS
from tenure.engine.engine import Engine
from tenure.engine.read.sample import take_sample
from tenure.errors import TenureError

log = structlog.get_logger("tenure.api")


class Sampler:
    """Takes samples while the server runs; without a store the last one stays."""

    def __init__(self, engine: Engine, metrics: Metrics, *, interval_ms: int = SAMPLE_MS) -> None:
        """Sample the store of ``engine`` for ``metrics``."""
        self._engine = engine
        self._metrics = metrics
        self._interval_s = interval_ms / 1000
        self._is_failing = False
        metrics.watch(engine)

    async def serve(self) -> None:
        """Take samples until cancelled."""
        while True:
            began = self._metrics.now()
            await self.run_once()
            took_s = self._metrics.now() - began
            await asyncio.sleep(max(self._interval_s, took_s * SAMPLE_BUDGET))

    async def run_once(self) -> bool:
        """Take one sample, and return whether it succeeded."""
        try:
            sample = await take_sample(self._engine.store, deaf=self._engine.deaf)
        except TenureError as error:
            self._fail(error)
        except Exception:
            log.exception("sample.failed")
            self._is_failing = True
        else:
            self._engine.statistics.sampled(sample)
            self._metrics.sampled(sample)
            self._is_failing = False
        return not self._is_failing

    def _fail(self, error: TenureError) -> None:
        """Log once what is wrong; after that the age of the sample shows it."""
        if not self._engine.outage.failed(error) and not self._is_failing:
            log.warning("sample.failed", error=error.message)
        self._is_failing = True
