"""What all background services share: start, stop, interval, back-off and the alarm.

A service has ``run_once`` and no loop of its own. It is safe to run twice at the same time; an
empty or failing round never stops the next.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from tenure.engine.clock import Clock
from tenure.errors import TenureError
from tenure.store.failure import StoreError

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

log = structlog.get_logger("tenure.engine")


class Report(msgspec.Struct, frozen=True):
    """What one round did, and whether there is more to do."""

    count: int = 0
    has_more: bool = False


class Job(Protocol):
    """One background service."""

    name: str

    def interval_ms(self, engine: Engine) -> int:
        """Return how long to wait after a round without more to do."""
        ...

    async def run_once(self, engine: Engine) -> Report:
        """Do a bounded amount of work."""
        ...


class Alarm:
    """Instants at which there is something to do, on the monotonic clock of this server."""

    def __init__(self) -> None:
        """Start with nothing to do."""
        self._instants: list[int] = []
        self._changed = asyncio.Event()

    def set(self, in_ms: int, mono_ms: int) -> None:
        """Add an instant in ``in_ms``."""
        at_mono_ms = mono_ms + max(0, in_ms)
        if not self._instants or at_mono_ms < self._instants[0]:
            self._changed.set()
        heapq.heappush(self._instants, at_mono_ms)

    def clear(self) -> None:
        """Remove all instants: the round that starts now finds everything that is due."""
        self._instants.clear()
        self._changed.clear()

    def clear_past(self, mono_ms: int) -> None:
        """Remove the instants until now."""
        while self._instants and self._instants[0] <= mono_ms:
            heapq.heappop(self._instants)

    async def wait(self, clock: Clock, most_ms: int) -> None:
        """Wait for the next instant, at most ``most_ms``; a new one may be earlier."""
        ends_at_mono_ms = clock.monotonic_ms() + most_ms
        while True:
            self._changed.clear()
            at_mono_ms = (
                min(self._instants[0], ends_at_mono_ms) if self._instants else ends_at_mono_ms
            )
            wait_ms = at_mono_ms - clock.monotonic_ms()
            if wait_ms <= 0:
                return
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return


class Service:
    """Runs one job repeatedly."""

    def __init__(self, job: Job, engine: Engine) -> None:
        """Serve ``job`` for ``engine``."""
        self._job = job
        self._engine = engine
        self.name = job.name

    async def serve(self) -> None:
        """Run rounds until cancelled."""
        while True:
            report = await self._round()
            if not report.has_more:
                await self._wait()

    async def _round(self) -> Report:
        try:
            return await self._job.run_once(self._engine)
        except (TenureError, StoreError) as error:
            if not self._engine.outage.failed(error):
                log.warning("service.failed", service=self.name, error=str(error))
        except Exception:
            log.exception("service.failed", service=self.name)
        return Report()

    async def _wait(self) -> None:
        engine = self._engine
        spread = 0.9 + 0.2 * engine.clock.jitter()
        interval_ms = self._job.interval_ms(engine) * spread
        alarm = engine.alarms.get(self.name)
        if alarm is None:
            await asyncio.sleep(interval_ms / 1000)
        else:
            await alarm.wait(engine.clock, round(interval_ms))
