"""What all background services share: start, stop, pace, back-off and the alarm.

A service has ``run_once`` and no loop of its own. It is safe to run twice at the same time; an
empty or failing round never stops the next.
"""

from __future__ import annotations

import asyncio
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
    """What one round did, and whether more is waiting."""

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
    """The nearest instant at which a task is due, on the monotonic clock of this server."""

    def __init__(self) -> None:
        """Start with nothing due."""
        self._at_mono_ms: int | None = None
        self._changed = asyncio.Event()

    def set(self, in_ms: int, mono_ms: int) -> None:
        """Ring in ``in_ms``, unless something earlier is set."""
        at_mono_ms = mono_ms + max(0, in_ms)
        if self._at_mono_ms is None or at_mono_ms < self._at_mono_ms:
            self._at_mono_ms = at_mono_ms
            self._changed.set()

    def clear(self) -> None:
        """Forget the instant: whoever looks now sees everything that is due."""
        self._at_mono_ms = None
        self._changed.clear()

    async def wait(self, clock: Clock, most_ms: int) -> None:
        """Wait for the instant, at most ``most_ms``; one that is set meanwhile may be earlier."""
        ends_at_mono_ms = clock.monotonic_ms() + most_ms
        while True:
            self._changed.clear()
            at_mono_ms = self._at_mono_ms
            if at_mono_ms is None or at_mono_ms > ends_at_mono_ms:
                at_mono_ms = ends_at_mono_ms
            wait_ms = at_mono_ms - clock.monotonic_ms()
            if wait_ms <= 0:
                return
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return


class Service:
    """Runs one job again and again."""

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
            log.warning("service.failed", service=self.name, error=str(error))
        except Exception:
            log.exception("service.failed", service=self.name)
        return Report()

    async def _wait(self) -> None:
        engine = self._engine
        interval_ms = self._job.interval_ms(engine)
        if self.name == "due_tasks":
            await engine.alarm.wait(engine.clock, interval_ms)
        else:
            spread = 0.9 + 0.2 * engine.clock.jitter()
            await asyncio.sleep(interval_ms * spread / 1000)
