"""Leases, and copies that are kept after their worker's end: records in, records out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from tenure.core.worker.judge import StaleServer, is_silent
from tenure.core.worker.lease import Beat, Lease
from tenure.core.worker.record import EndReason, Worker
from tenure.store.table import codec
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets


class Lapsed(msgspec.Struct, frozen=True, gc=False):
    """A lease that may have ended; when its server was last seen, and its number of leases then."""

    lease: Lease
    server_seen_at_ms: int | None
    server_lease_count: int | None


async def beat_leases(tx: Tx, beats: Sequence[tuple[str, str, Beat]], now_ms: int) -> list[Lease]:
    """Renew the leases of (worker, namespace) whose token matches; others are left out."""
    given = {each[0]: each for each in beats}
    rows = await tx.each(
        "beat_leases",
        [
            (
                worker_id,
                namespace,
                beat.token,
                beat.server_id,
                beat.lease_ms,
                beat.total_completed if beat.total_completed >= 0 else -1 - beat.completed_delta,
                beat.total_failed if beat.total_failed >= 0 else -1 - beat.failed_delta,
                beat.active_count,
                beat.loop_lag_ms,
                beat.stuck_count,
            )
            for worker_id, namespace, beat in beats
        ],
        now_ms,
    )
    return [_renewed(row, given, now_ms) for row in rows]


def _renewed(row: codec.AnyRow, given: Mapping[str, tuple[str, str, Beat]], now_ms: int) -> Lease:
    """Return a lease after its heartbeat: the sent values, and those of the row."""
    worker_id, lease_ms, previous_beat_at_ms, total_completed, total_failed = row
    _, namespace, beat = given[worker_id]
    return Lease(
        worker_id,
        namespace,
        beat.server_id,
        now_ms + lease_ms,
        lease_ms,
        beat.token + 1,
        now_ms,
        previous_beat_at_ms,
        total_completed,
        total_failed,
        beat.active_count,
        beat.loop_lag_ms,
        beat.stuck_count,
    )


async def read_leases(tx: Tx, worker_ids: Iterable[str]) -> list[Lease]:
    """Read leases."""
    rows = await tx.each("read_leases", [(each,) for each in sorted(worker_ids)])
    return [codec.lease_from(row) for row in rows]


async def load_lapsed(tx: Tx, *, now_ms: int, amount: int) -> list[Lapsed]:
    """Return leases that may have ended."""
    rows = await tx.one("load_lapsed", now_ms, amount)
    return [Lapsed(codec.lease_from(row), *cast("list[int | None]", row[15:17])) for row in rows]


async def count_leases(tx: Tx, server_ids: Iterable[str]) -> dict[str, int]:
    """Count the leases that these servers renewed last."""
    rows = await tx.each("count_leases", [(each,) for each in sorted(server_ids)])
    return {cast("str", row[0]): cast("int", row[1]) for row in rows}


async def insert_leases(tx: Tx, leases: Sequence[Lease]) -> None:
    """Write the leases of new incarnations."""
    await tx.each("insert_leases", [codec.lease_inserted(each) for each in leases])


async def clamp_leases(tx: Tx, now_ms: int) -> None:
    """Shorten leases that would last longer than granted: the clock was set back."""
    await tx.one("clamp_leases", now_ms)


async def lock_leases(tx: Tx, worker_ids: Iterable[str]) -> list[Lease]:
    """Lock leases as they are now; one that is being renewed is left out."""
    rows = await tx.each("lock_leases", [(each,) for each in sorted(worker_ids)])
    return [codec.lease_from(row) for row in rows]


async def keep_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Copy the leases of workers that are about to go offline, as they are now."""
    await tx.each("keep_leases", [(each,) for each in sorted(worker_ids)])


async def read_ended_leases(tx: Tx, worker_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return until when the lease of each offline worker would have lasted, and its length."""
    rows = await tx.each("read_ended_leases", [(each,) for each in sorted(worker_ids)])
    return {cast("str", row[0]): (cast("int", row[1]), cast("int", row[2])) for row in rows}


async def drop_ended_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Delete the copied leases of workers that hold nothing more."""
    await tx.each("drop_ended_leases", [(each,) for each in sorted(worker_ids)])


async def drop_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Delete the leases of workers that end; their totals are kept."""
    rows = await tx.each("drop_leases", [(each,) for each in sorted(worker_ids)])
    if rows:
        await tx.each("keep_totals", [tuple(row) for row in rows])


async def fail_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Count a failed call to served workers."""
    await tx.each("fail_leases", [(each,) for each in sorted(worker_ids)])


async def suspect_leases(tx: Tx, leases: Sequence[Lease]) -> set[str]:
    """Write until when each worker is suspect, unless it sent a heartbeat meanwhile."""
    rows = await tx.each(
        "suspect_leases", [(each.worker_id, each.token, each.suspect_until_ms) for each in leases]
    )
    return {cast("str", row[0]) for row in rows}


async def resume_leases(tx: Tx, leases: Sequence[Lease]) -> None:
    """Write that suspect workers are connected again."""
    await tx.each("resume_leases", [(each.worker_id, each.server_id) for each in leases])


class LeaseRows(RowSet[str, Lease]):
    """Leases by worker, and copies that are kept after their worker's end (``ended``).

    To judge, the leases that may have ended (``lapsed``) are found, and only those that
    ``reason_to_end`` would end are locked: other workers can still renew. A heartbeat changes only
    a lease, in its own lane, so each kind of change writes only its own columns.
    """

    __slots__ = (
        "began_at_mono_ms",
        "dropped",
        "ended",
        "ended_wanted",
        "failed",
        "forgotten",
        "kept",
        "lapsed",
        "lease_counts",
        "reason_to_end",
        "resumed",
        "scanned_at_ms",
        "suspected",
    )

    table = Table(operator.attrgetter("worker_id"), is_locked=False)

    def __init__(self) -> None:
        """Start without leases."""
        super().__init__()
        self.ended_wanted: set[str] = set()
        self.ended: dict[str, tuple[int, int]] = {}
        self.reason_to_end: ReasonToEnd = _spare
        self.began_at_mono_ms = 0
        self.scanned_at_ms = 0
        self.lapsed: dict[str, Lapsed] = {}
        self.lease_counts: dict[str, int] = {}
        self.dropped: set[str] = set()
        self.kept: set[str] = set()
        self.forgotten: set[str] = set()
        self.suspected: dict[str, Lease] = {}
        self.resumed: dict[str, Lease] = {}
        self.failed: list[str] = []

    async def find_lapsed(self, tx: Tx, amount: int) -> set[str]:
        """Return the workers whose leases may have ended; nothing is locked, workers come first."""
        self.scanned_at_ms = now_ms = await tx.now_ms()
        await clamp_leases(tx, now_ms)
        found = await load_lapsed(tx, now_ms=now_ms, amount=amount)
        self.lapsed = {each.lease.worker_id: each for each in found}
        return set(self.lapsed)

    def stale_server(self, lapsed: Lapsed) -> StaleServer | None:
        """Return the server that renewed a worker's lease last, if it is silent."""
        seen_at_ms = lapsed.server_seen_at_ms
        if seen_at_ms is None or not is_silent(seen_at_ms=seen_at_ms, now_ms=self.scanned_at_ms):
            return None
        left_count = self.lease_counts.get(lapsed.lease.server_id, 0)
        return StaleServer(seen_at_ms, lapsed.server_lease_count or 0, left_count)

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Load leases, and lock those that have ended."""
        if self.lapsed:
            await self._lock_lapsed(tx, rows)
        if self.wanted:
            for lease in await read_leases(tx, self.wanted):
                self.take(lease)
        if self.ended_wanted:
            self.ended = await read_ended_leases(tx, self.ended_wanted)

    async def _lock_lapsed(self, tx: Tx, rows: RowSets) -> None:
        """Lock the leases to end; a heartbeat or a session since the scan wins."""
        silent = {x.lease.server_id for x in self.lapsed.values() if self.stale_server(x)}
        if silent:
            self.lease_counts = await count_leases(tx, silent)
        over = {}
        for key, lapsed in self.lapsed.items():
            worker = rows.workers.get(key)
            if worker is not None and self.reason_to_end(self, lapsed, worker) is not None:
                over[key] = lapsed
        self.lapsed = {}
        for lease in await lock_leases(tx, over) if over else ():
            if _judged_by(lease) == _judged_by(over[lease.worker_id].lease):
                self.lapsed[self.take(lease)] = over[lease.worker_id]
        rows.note_locked()

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Save each kind of change separately; leases are copied before they are deleted."""
        del rows
        if self.kept:
            await keep_leases(tx, self.kept)
        if self.forgotten:
            await drop_ended_leases(tx, self.forgotten)
        if self.dropped:
            await drop_leases(tx, self.dropped)
        if self.new:
            await insert_leases(tx, list(self.new.values()))
        if self.suspected:
            await suspect_leases(tx, list(self.suspected.values()))
        if self.resumed:
            await resume_leases(tx, list(self.resumed.values()))
        if self.failed:
            await fail_leases(tx, self.failed)

    def keep_taken(self, first: RowSet[str, Lease]) -> None:
        """Keep the leases that were locked to be judged."""
        assert isinstance(first, LeaseRows)
        self.lapsed, self.lease_counts = first.lapsed, first.lease_counts
        self.scanned_at_ms, self.began_at_mono_ms = first.scanned_at_ms, first.began_at_mono_ms
        for each in self.lapsed.values():
            self.take(each.lease)


ReasonToEnd = Callable[[LeaseRows, Lapsed, Worker], EndReason | None]
_judged_by = operator.attrgetter("token", "lease_until_ms", "suspect_until_ms")


def _spare(_leases: LeaseRows, _lapsed: Lapsed, _worker: Worker) -> EndReason | None:
    """No worker is judged unless a command sets the readiness."""
