"""How time passes for the server of a test: from one instant to the next at which something is due.

The clock stands still until the test moves it, and the test moves it over days at once. So that
everything happens as if the time had passed, the clock stops at each instant at which a timer of a
task, a schedule or a lease is due, and what follows from it is waited for before time goes on.

A jump must not cost a live worker its lease: it had no time to send the heartbeats of three days.
The timeline speaks for it. Every lease, but for those of workers that the test has killed or cut
off and of those whose connection is gone, is renewed as of the instant that the clock is about to
show. Those others are judged exactly when their lease or their grace is over. The server can hear
all the while, so nothing that depends on hearing from workers is put off.

Code has no clock that a test can move. What runs gets a moment of real time (``patience``) to end
at the instant at which it began; what takes longer goes on while time passes, and its timeouts
come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from tenure.core.limits import DUE_BATCH_MAX, INSTANT_MS_MAX, JUDGED_BATCH_MAX, WORKER_SLOTS_MAX
from tenure.core.task.record import TaskState
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import Worker, WorkerStatus
from tenure.engine.service import Report
from tenure.engine.services.child_closing import ChildClosing
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.services.retention import Retention
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.engine.task.command import ProcessDue, SignalCancels
from tenure.engine.worker.command import JudgeLeases, TouchServer
from tenure.store.table import lease as lease_table
from tenure.store.table import listing
from tenure.store.table import schedule as schedule_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.listing import Head
from tenure.store.transaction import LaneName
from tenure.testing.clock import ServerClock

if TYPE_CHECKING:
    from tenure.engine.engine import Engine
    from tenure.store.transaction import Tx

# Longer than any period that is judged.
_ALWAYS_MS: Final = INSTANT_MS_MAX
_LOOK_SECONDS: Final = 0.002
_LOOK_SECONDS_MAX: Final = 0.02
_HEADS_MAX: Final = 1_000
# A batch may make work for the next one, and that for another.
_BATCHES: Final = 4
_NAMESPACE: Final = "default/default"
_BUSY: Final = frozenset({TaskState.DISPATCHED, TaskState.RUNNING, TaskState.CANCELLING})


class SightedDueTasks:
    """The engine's service of the same name, for a server that is sighted by definition."""

    name = "due_tasks"

    def interval_ms(self, engine: Engine) -> int:
        """Return the fallback for timers that nobody set the alarm for."""
        return engine.settings.fallback_poll_ms

    async def run_once(self, engine: Engine) -> Report:
        """Look at tasks whose timer has fired."""
        # What is due later is the timeline's business: time stands still until it moves it.
        engine.alarm.clear()
        command = ProcessDue(sighted_ms=_ALWAYS_MS, amount=DUE_BATCH_MAX)
        done = await engine.submit(command)
        return Report(done.count, has_more=done.has_more)


class _Look(msgspec.Struct, frozen=True):
    """What one look at the store saw: who is alive, what each holds, and what waits."""

    held: dict[str, list[tuple[str, int, TaskState]]]
    workers: list[Worker]
    heads: list[Head]


class Timeline:
    """Moves the clock of one engine; belongs to the engine's loop."""

    def __init__(
        self,
        engine: Engine,
        clock: ServerClock,
        *,
        patience_s: float,
        is_hurt: Callable[[str], bool],
    ) -> None:
        """Let time pass; ``is_hurt`` tells whether the test has killed a worker or cut it off."""
        self._engine = engine
        self._clock = clock
        self._patience_s = patience_s
        self._is_hurt = is_hurt
        self._seen_at_s: dict[Hashable, float] = {}
        self._lock = asyncio.Lock()
        self._firing = ScheduleFiring()

    async def advance(self, ms: int) -> None:
        """Let time pass, and return when everything that came due was handled."""
        async with self._lock:
            end_ms = self._clock.now_ms() + ms
            await self._settle()
            while self._clock.now_ms() < end_ms:
                await self._go_to(await self._next_ms(end_ms))
            await self._forget_old()

    async def step(self, most_ms: int) -> bool:
        """Let time pass to the next instant at which something is due; False if nothing is."""
        async with self._lock:
            now_ms = self._clock.now_ms()
            await self._settle()
            at_ms = await self._next_ms(now_ms + most_ms)
            if at_ms >= now_ms + most_ms:
                return False
            await self._go_to(at_ms)
            return True

    async def _go_to(self, at_ms: int) -> None:
        await self._engine.store.transaction(
            lambda tx: self._keep_alive(tx, at_ms), LaneName.HEARTBEAT
        )
        self._clock.advance(at_ms - self._clock.now_ms())
        await self._judge()
        self._engine.look_for_work()
        await self._settle()

    # -- Instants

    async def _next_ms(self, end_ms: int) -> int:
        """Return the next instant at which something is due, and at the latest the end."""
        return await self._engine.store.read(lambda tx: self._find_next(tx, end_ms))

    async def _find_next(self, tx: Tx, end_ms: int) -> int:
        instants = [end_ms]
        for find in (task_table.next_due_ms, schedule_table.next_due_ms):
            due_at_ms = await find(tx)
            if due_at_ms is not None:
                instants.append(due_at_ms)
        instants += [
            min(lease.lease_until_ms, lease.suspect_until_ms or end_ms)
            for lease in await _leases(tx)
            if not self._is_alive(lease)
        ]
        # A row that is due now and stays as it is must not stop the clock.
        return max(min(instants), self._clock.now_ms() + 1)

    def _is_alive(self, lease: Lease) -> bool:
        return lease.suspect_until_ms is None and not self._is_hurt(lease.worker_id)

    async def _keep_alive(self, tx: Tx, at_ms: int) -> None:
        """Renew the leases of live workers as if they had sent a heartbeat at an instant.

        Their tokens stay: a worker does not notice that somebody spoke for it.
        """
        alive = [each for each in await _leases(tx) if self._is_alive(each)]
        await lease_table.drop_leases(tx, [each.worker_id for each in alive])
        renewed = [
            replace(
                each,
                lease_until_ms=at_ms + each.lease_ms,
                beat_at_ms=at_ms,
                previous_beat_at_ms=each.beat_at_ms,
            )
            for each in alive
        ]
        await lease_table.insert_leases(tx, renewed)

    # -- What is due

    async def _judge(self) -> None:
        engine = self._engine
        due, release = SightedDueTasks(), HeldRelease()
        while (await due.run_once(engine)).has_more:
            pass
        # A judgement asks when the server was seen last.
        await engine.submit(TouchServer(server_id=engine.server_id))
        judgement = JudgeLeases(
            sighted_ms=_ALWAYS_MS,
            amount=JUDGED_BATCH_MAX,
            suspect_grace_ms=engine.settings.suspect_grace_ms,
        )
        while (await engine.submit(judgement)).has_more:
            pass
        while (await release.run_once(engine)).has_more:
            pass
        await self._close_children()
        await self._fire_schedules()

    async def _fire_schedules(self) -> None:
        """Fire what is due, also what the end of a task has made due."""
        engine = self._engine
        while True:
            await self._firing.run_once(engine)
            due_at_ms = await engine.store.read(schedule_table.next_due_ms)
            if due_at_ms is None or due_at_ms > self._clock.now_ms():
                return

    async def _close_children(self) -> None:
        closing = ChildClosing()
        while (await closing.run_once(self._engine)).has_more:
            pass

    async def _forget_old(self) -> None:
        retention = Retention()
        while (await retention.run_once(self._engine)).has_more:
            pass

    # -- What follows from it

    async def _settle(self) -> None:
        """Wait until nothing moves: no batch, no task on its way, no code that ends soon."""
        pause_s = _LOOK_SECONDS
        while True:
            await self._close_children()
            await self._fire_schedules()
            await self._flush()
            look = await self._engine.store.read(self._look)
            if not self._has_hope(look):
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_SECONDS_MAX)

    async def _flush(self) -> None:
        """Wait until everything that was asked for, and what followed from it, has been done."""
        nothing = SignalCancels(namespace=_NAMESPACE, items=())
        for _ in range(_BATCHES):
            await self._engine.submit(nothing)
        while self._engine.waiting_count:
            await self._engine.submit(nothing)

    async def _look(self, tx: Tx) -> _Look:
        alive = [each.worker_id for each in await _leases(tx) if self._is_alive(each)]
        workers = await worker_table.read_workers(tx, alive)
        held = {
            each.id: [
                (task.id, task.attempt, task.state)
                for task in await task_table.load_held(tx, each, amount=WORKER_SLOTS_MAX)
            ]
            for each in workers
        }
        return _Look(held, workers, await listing.list_waiting(tx, amount=_HEADS_MAX))

    def _has_hope(self, look: _Look) -> bool:
        """Tell whether something may move without help of the clock; each has its patience."""
        moving: set[Hashable] = {
            (task_id, attempt, state is TaskState.CANCELLING)
            for held in look.held.values()
            for task_id, attempt, state in held
            if state in _BUSY
        }
        moving.update(
            (head.namespace, head.queue, head.type, head.run_at_ms)
            for head in look.heads
            if self._can_start(head, look)
        )
        now_s = time.monotonic()
        self._seen_at_s = {each: self._seen_at_s.get(each, now_s) for each in moving}
        return any(now_s - at_s < self._patience_s for at_s in self._seen_at_s.values())

    def _can_start(self, head: Head, look: _Look) -> bool:
        """Tell whether a worker has a free slot for the first task of a line."""
        if head.is_paused:
            return False
        group = [
            each
            for each in look.workers
            if (each.namespace, each.queue) == (head.namespace, head.queue)
        ]
        held_count = sum(len(look.held[each.id]) for each in group)
        if 0 < head.concurrency_max <= held_count:
            return False
        return any(
            head.type in each.types
            and each.status is WorkerStatus.ONLINE
            and len(look.held[each.id]) < each.slots
            for each in group
        )


async def _leases(tx: Tx) -> list[Lease]:
    lapsed = await lease_table.load_lapsed(tx, now_ms=INSTANT_MS_MAX, amount=JUDGED_BATCH_MAX)
    return [each.lease for each in lapsed]
