"""Runs the batches of the heartbeat lane, which show whether this server gets heartbeats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from tenure.core.worker import judge_readiness as readiness_rules
from tenure.core.worker.judge_readiness import JudgeReadiness
from tenure.engine.batch import split
from tenure.engine.batch.split import PartDeadline
from tenure.engine.clock import Clock
from tenure.engine.command import AnyCommand
from tenure.engine.lane import Entry, resolve
from tenure.engine.meter import Meter
from tenure.engine.settings import Settings
from tenure.engine.worker import heartbeat
from tenure.engine.worker.beat_log import BeatLog
from tenure.engine.worker.session_loss import SessionLosses
from tenure.engine.worker.worker_key import WorkerKeys
from tenure.store.failure import Blocked, Conflict, Lost
from tenure.store.transaction import LaneName, Store, Tx

log = structlog.get_logger("tenure.engine")
BeatEntry = Entry[AnyCommand]
Lose = Callable[[Sequence[Entry[Any]], Lost], None]


class HeartbeatRun:
    """Runs the batches of the heartbeat lane.

    ``lose`` answers the commands of a failed batch; ``on_commit`` is called after each other one.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        meter: Callable[[], Meter],
        lose: Lose,
        pause: Callable[[str], Awaitable[None]] | None,
    ) -> None:
        """Start without a commit."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._meter = meter
        self._lose = lose
        self.on_commit: Callable[[], None] = lambda: None
        self.judge_readiness: JudgeReadiness | None = None
        self.sessions = SessionLosses()
        self.worker_keys = WorkerKeys(clock)
        self.beat_log = BeatLog()
        self._pause = pause

    async def run(self, entries: Sequence[BeatEntry], deadline: PartDeadline | None = None) -> None:
        """Renew the leases in one transaction, and answer."""
        await self._slow("before batch")
        commands = [command for command, _ in entries]
        began = self._meter().now()

        async def body(tx: Tx) -> heartbeat.Beaten:
            if deadline is not None:
                await deadline.apply(tx)
            return await heartbeat.run(tx, commands, self._settings, self._store.position)

        try:
            beaten = await self._store.transaction(body, LaneName.HEARTBEAT)
        except Lost as lost:
            self._lose(entries, lost)
            return
        except Blocked as blocked:
            await self._run_parts(entries, deadline, blocked)
            return
        except Conflict as conflict:
            self._lose(entries, Lost(str(conflict), reason="conflict"))
            return
        except Exception:
            log.exception("heartbeats.failed", size=len(entries))
            self._lose(entries, Lost("The batch failed.", reason="internal"))
            return
        self._see(beaten.now_ms)
        self.on_commit()
        self.worker_keys.learn(beaten.workers.values())
        self.beat_log.note(commands, beaten.answers, beaten.now_ms)
        await self._slow("after commit")
        for (command, future), answer in zip(entries, beaten.answers, strict=True):
            if future.cancelled():
                self.sessions.unanswered(command, answer, mono_ms=self._clock.monotonic_ms())
            else:
                resolve(future, answer)
        self._meter().ran(LaneName.HEARTBEAT, len(entries), began)
        self._meter().refused(beaten.answers)

    async def _run_parts(
        self, entries: Sequence[BeatEntry], deadline: PartDeadline | None, blocked: Blocked
    ) -> None:
        """Find the heartbeat whose row is locked; the others are not affected."""
        mono_ms = self._clock.monotonic_ms()
        if deadline is None:
            log.warning("heartbeats.blocked", size=len(entries), error=str(blocked))
            deadline = PartDeadline.from_now(mono_ms)
        if len(entries) == 1 or mono_ms >= deadline.ends_at_mono_ms:
            self._lose(entries, Lost(str(blocked), reason="conflict"))
            return
        for some in split.halves(entries):
            await self.run(some, deadline)

    def _see(self, now_ms: int) -> None:
        mono_ms = self._clock.monotonic_ms()
        if self.judge_readiness is None:
            self.judge_readiness = readiness_rules.begin(mono_ms=mono_ms, store_now_ms=now_ms)
        else:
            self.judge_readiness = readiness_rules.commit(
                self.judge_readiness, mono_ms=mono_ms, store_now_ms=now_ms
            )

    async def _slow(self, point: str) -> None:
        if self._pause is not None:
            await self._pause(point)
