"""A batch of one command for one task, as one statement that is a transaction of its own.

A server with little load answers sooner this way: each statement of a transaction, and its begin
and end, are round trips. The batch first runs on the data in memory. If all that is left to do is
one write of one task, that write is sent, fenced by the data that was used. If anything else is
needed, or the fence fails, nothing was done and the batch runs as a transaction. A claim reads its
lines first, unless this server has stored the only task in them: two statements, or one, instead
of five.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tenure.core.limits import CROWDED_MS, RECEIVERS_KEPT_MAX, YOUNG_MARGIN_MS
from tenure.core.task.record import Task
from tenure.core.worker import lease as lease_rules
from tenure.core.worker.receiver import Receiver
from tenure.engine.batch import run as batch
from tenure.engine.batch.store_time import StoreTime
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.command import AnyCommand
from tenure.engine.command_table import SPECS
from tenure.engine.task import command as c
from tenure.store.table import codec, single
from tenure.store.transaction import Row, Store


class _Unsuited(Exception):
    """The batch needs more than one write."""


class Rehearsal:
    """Replaces a transaction: it knows the time, reads lines, and records one write."""

    def __init__(self, store: Store, now_ms: int, sole: Task | None) -> None:
        """Run at an instant; ``sole`` is what a read of the lines would find, if that is known."""
        self._store = store
        self._now_ms = now_ms
        self._sole = sole
        self.write: tuple[str, tuple[object, ...]] | None = None

    async def one(self, name: str, *parameters: object) -> Sequence[Row]:
        """Refuse: the row is not in memory."""
        del parameters
        raise _Unsuited(name)

    async def each(
        self, name: str, rows: Sequence[tuple[object, ...]], *shared: object
    ) -> Sequence[Row]:
        """Read lines, or record an enqueue."""
        del shared
        if name == single.CLAIM:
            if self._sole is not None:
                return ((*codec.task_inserted(self._sole), *codec.link_read(self._sole), 0),)
            return await self._store.look(single.PEEK, rows)
        if name != single.INSERT:
            raise _Unsuited(name)
        self._note(name, rows)
        return ()

    async def fenced(self, name: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Record a write that fences itself."""
        self._note(name, rows)
        return len(rows)

    async def now_ms(self) -> int:
        """Return the condition on the store's time."""
        return self._now_ms

    def _note(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        if self.write is not None or len(rows) != 1:
            raise _Unsuited(name)
        self.write = (name, rows[0])


class SingleWriter:
    """Runs batches of one command, if the time and the workers are known."""

    def __init__(self, store: Store, time: StoreTime) -> None:
        """Start without known workers."""
        self._store = store
        self._time = time
        self._receivers: dict[str, Receiver] = {}
        self._crowded_until_ms = 0

    def learn(self, receivers: Mapping[str, Receiver]) -> None:
        """Keep workers as they were when they were handed work."""
        if len(self._receivers) + len(receivers) > RECEIVERS_KEPT_MAX:
            self._receivers.clear()
        self._receivers.update(receivers)

    async def run(
        self, commands: Sequence[AnyCommand], context: batch.Context
    ) -> batch.Committed | None:
        """Run a batch by one write, or return ``None`` if nothing was done."""
        mono_ms, ahead_ms = context.clock.monotonic_ms(), context.store_ahead_ms
        if ahead_ms is None or not self._is_suited(commands, context, mono_ms):
            return None
        now_ms = mono_ms + ahead_ms
        reporters = _reporters(commands)
        receivers = self._known(context.plan, reporters, now_ms)
        if receivers is None:
            return None
        rehearsal = Rehearsal(self._store, now_ms, context.plan.sole)
        context = replace(context, receivers=receivers, plan=_with_one_more(context.plan))
        try:
            committed = await batch.run(rehearsal, list(commands), context)
        except _Unsuited:
            if context.plan.demands:
                self._crowded_until_ms = mono_ms + CROWDED_MS
            return None
        return await self._write(rehearsal, committed, is_report=bool(reporters))

    def _is_suited(
        self, commands: Sequence[AnyCommand], context: batch.Context, mono_ms: int
    ) -> bool:
        """Return whether a batch can be one write, as far as that is known before."""
        if len(commands) > 1 or not self._store.is_far or not self._time.is_fresh(mono_ms):
            return False
        is_claim = not commands or isinstance(commands[0], c.ClaimTasks)
        if is_claim:
            return mono_ms >= self._crowded_until_ms
        spec = SPECS[type(commands[0])]
        is_single = spec.can_be_single and spec.weigh(commands[0]) == 1
        return is_single and not context.plan.demands

    async def _write(
        self, rehearsal: Rehearsal, committed: batch.Committed, *, is_report: bool
    ) -> batch.Committed | None:
        """Run the batch in memory; a refusal by a cached worker needs a real read."""
        claims = committed.claims
        if claims.refused:
            return None
        if rehearsal.write is None:
            # Empty lines need no write, unless a poll is new.
            is_done = claims.asked and not any(hand.is_new for hand in committed.plan.hands)
            return replace(committed, store_ahead_ms=None) if is_done else None
        name, row = rehearsal.write
        fence: tuple[int, ...] = ()
        if name == single.INSERT or claims.assigned or is_report:
            name, fence = single.FENCED[name], self._fence(committed)
        is_written = await self._store.write(name, row, *fence)
        return replace(committed, store_ahead_ms=None) if is_written else None

    def _known(self, plan: ClaimPlan, reporters: set[str], now_ms: int) -> list[Receiver] | None:
        """Return workers from memory.

        The write itself checks whether they are late, and whether they have a slot free.
        """
        known = []
        counted = plan.counted
        for worker_id in plan.receivers | reporters:
            receiver = self._receivers.get(worker_id)
            if receiver is None or receiver.lease_ms is None:
                return None
            if receiver.queue is not None and receiver.queue.has_brakes:
                return None
            held_count = 0 if worker_id in counted else None
            known.append(replace(receiver, beat_at_ms=None, now_ms=now_ms, held_count=held_count))
        return known

    def _fence(self, committed: batch.Committed) -> tuple[int, ...]:
        """Return the conditions for the write of an enqueue or a hand-out."""
        ws = committed.ws
        now_ms = ws.now_ms
        span = (now_ms - YOUNG_MARGIN_MS, now_ms + YOUNG_MARGIN_MS)
        (task,) = (ws.tasks.new or ws.tasks.changed).values()
        if task.worker_id is None:
            return (0, 0, 0, 0, *span)
        receiver = self._receivers[task.worker_id]
        lease_ms = receiver.lease_ms
        assert lease_ms is not None
        late_since_ms = lease_rules.late_since_ms(lease_ms=lease_ms, now_ms=now_ms)
        slots = receiver.worker.slots if task.worker_id in committed.plan.counted else 0
        return (receiver.worker.version, lease_ms, late_since_ms, slots, *span)


def _reporters(commands: Sequence[AnyCommand]) -> set[str]:
    """Return the reporting worker: the report counts only if the worker is as in memory."""
    for command in commands:
        if isinstance(command, c.ConfirmTasks | c.HeartbeatTasks) and command.worker_id is not None:
            return {command.worker_id}
    return set()


def _with_one_more(plan: ClaimPlan) -> ClaimPlan:
    """Read one task more than is wanted: without locks it costs nothing to know the rest."""
    if not plan.demands:
        return plan
    more = tuple(replace(each, amount=each.amount + 1) for each in plan.demands)
    return replace(plan, demands=more)
