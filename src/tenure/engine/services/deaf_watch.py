"""Finds deaf workers: work waits for them, they have free slots, and they do not request it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tenure.core.limits import DEAF_WATCH_MS, DEAF_WATCHED_MAX, LINES_SEEN_MAX
from tenure.core.worker.lease import interval_ms
from tenure.engine.service import Report
from tenure.store.table import listing
from tenure.store.table import task as task_table
from tenure.store.table.listing import Head, HeldCount, OnlineWorker

if TYPE_CHECKING:
    from tenure.engine.engine import Engine
    from tenure.store.transaction import Tx

LineKey = tuple[str, str, str]
_LOWEST: Final = "00000000-0000-0000-0000-000000000000"
_HIGHEST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class _Silence(msgspec.Struct, gc=False):
    """Since when a worker requests nothing, by this server's clock, and its signs of life."""

    since_mono_ms: int
    signs: tuple[int, int]


class _Look(msgspec.Struct, frozen=True):
    """The data of one round: the time, the oldest task per line, and some of the workers."""

    now_ms: int
    oldest: dict[LineKey, int]
    workers: list[OnlineWorker]


class DeafWatch:
    """Keeps ``engine.deaf``: the deaf workers among those that send heartbeats to this server.

    Only the server that has them knows polls and credit. A worker that polls another server shows
    by its hand-outs or reports that it requests work there.
    """

    name = "deaf_watch"

    def __init__(self, *, amount: int = DEAF_WATCHED_MAX) -> None:
        """Check ``amount`` workers per round."""
        self._amount = amount
        self._after_id = _LOWEST
        self._silences: dict[str, _Silence] = {}

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the check."""
        del engine
        return DEAF_WATCH_MS

    async def run_once(self, engine: Engine) -> Report:
        """Check the next workers, and remove those for which nothing waits any more."""
        server_id, after_id = engine.server_id, self._after_id
        look = await engine.store.read(lambda tx: self._look(tx, server_id, after_id))
        silent = [
            worker.place
            for worker in look.workers
            if _waits_since(worker, look) is not None and not engine.has_credit(worker.id)
        ]
        held = await engine.store.read(lambda tx: listing.count_worker_held(tx, silent))
        mono_ms = engine.clock.monotonic_ms()
        engine.worker_activity.forget_old(mono_ms)
        self._drop_gone(look.workers)
        deaf = {each for each in engine.deaf if each in self._silences}
        for worker in look.workers:
            deaf.discard(worker.id)
            last_mono_ms = engine.worker_activity.last_mono_ms(worker.id)
            silence = self._silence(worker, held.get(worker.id), mono_ms, last_mono_ms)
            if silence is not None and _is_deaf(worker, look, mono_ms - silence.since_mono_ms):
                deaf.add(worker.id)
        engine.deaf = frozenset(each for each in deaf if not engine.has_credit(each))
        return Report(len(engine.deaf))

    async def _look(self, tx: Tx, server_id: str, after_id: str) -> _Look:
        oldest = await _oldest(tx)
        workers = []
        if oldest:
            workers = await listing.list_online(
                tx, server_id=server_id, after_id=after_id, amount=self._amount
            )
        return _Look(await tx.now_ms(), oldest, workers)

    def _drop_gone(self, workers: list[OnlineWorker]) -> None:
        """Remove workers that should have been among those just read, and continue after them."""
        has_more = len(workers) == self._amount
        last_id = workers[-1].id if has_more else _HIGHEST
        seen = {worker.id for worker in workers}
        for each in list(self._silences):
            if self._after_id < each <= last_id and each not in seen:
                del self._silences[each]
        self._after_id = last_id if has_more else _LOWEST

    def _silence(
        self, worker: OnlineWorker, held: HeldCount | None, mono_ms: int, last_mono_ms: int | None
    ) -> _Silence | None:
        """Return since when a worker with free slots is silent; ``held`` is its own count."""
        # An attempt that does not stop keeps its slot although it has ended. A worker without
        # another slot is stuck, which is shown instead.
        if held is None or held.count + worker.stuck_count >= worker.slots:
            self._silences.pop(worker.id, None)
            return None
        signs = (worker.report_count, held.handed_at_ms)
        silence = self._silences.get(worker.id)
        if silence is None or silence.signs != signs:
            silence = self._silences[worker.id] = _Silence(mono_ms, signs)
        if last_mono_ms is not None:
            silence.since_mono_ms = max(silence.since_mono_ms, last_mono_ms)
        return silence


async def _oldest(tx: Tx) -> dict[LineKey, int]:
    """Return since when the oldest task of each type waits that may be handed out now."""
    heads = await listing.list_waiting(tx, amount=LINES_SEEN_MAX)
    limited = {(head.namespace, head.queue) for head in heads if head.concurrency_max}
    held = await task_table.count_held(tx, limited)
    oldest: dict[LineKey, int] = {}
    for head in heads:
        if not _is_held_back(head, held.get((head.namespace, head.queue), 0)):
            key = (head.namespace, head.queue, head.type)
            oldest[key] = min(head.run_at_ms, oldest.get(key, head.run_at_ms))
    return oldest


def _is_held_back(head: Head, held_count: int) -> bool:
    return head.is_paused or (head.concurrency_max > 0 and held_count >= head.concurrency_max)


def _is_deaf(worker: OnlineWorker, look: _Look, silent_ms: int) -> bool:
    """Return whether a task has waited for two intervals and the worker requested nothing."""
    since_ms = _waits_since(worker, look)
    least_ms = 2 * interval_ms(worker.lease_ms)
    return since_ms is not None and min(silent_ms, look.now_ms - since_ms) >= least_ms


def _waits_since(worker: OnlineWorker, look: _Look) -> int | None:
    """Return since when a task has waited that the worker could run."""
    waiting = [
        look.oldest[key]
        for each in worker.types
        if (key := (worker.namespace, worker.queue, each)) in look.oldest
    ]
    return min(waiting, default=None)
