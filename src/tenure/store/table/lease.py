"""Leases, and those kept in mind after their worker's end: records in, records out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from tenure.core.worker.lease import Beat, Lease
from tenure.store.table import codec
from tenure.store.transaction import Tx


class Lapsed(msgspec.Struct, frozen=True, gc=False):
    """A lease that may be over; when its server was seen last, and how many leases it had then."""

    lease: Lease
    server_seen_at_ms: int | None
    server_lease_count: int | None


async def beat_leases(
    tx: Tx,
    beats: Sequence[tuple[str, str, Beat]],
    now_ms: int,
) -> list[Lease]:
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


def _renewed(
    row: codec.AnyRow,
    given: Mapping[str, tuple[str, str, Beat]],
    now_ms: int,
) -> Lease:
    """Return a lease after its heartbeat: what was sent, and what only the row knew."""
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
    """Return leases that seem to be over."""
    rows = await tx.one("load_lapsed", now_ms, amount)
    return [Lapsed(codec.lease_from(row), *cast("list[int | None]", row[15:17])) for row in rows]


async def count_leases(tx: Tx, server_ids: Iterable[str]) -> dict[str, int]:
    """Count the leases of workers that these servers heard last."""
    rows = await tx.each("count_leases", [(each,) for each in sorted(server_ids)])
    return {cast("str", row[0]): cast("int", row[1]) for row in rows}


async def insert_leases(tx: Tx, leases: Sequence[Lease]) -> None:
    """Write the leases of new incarnations."""
    await tx.each("insert_leases", [codec.lease_inserted(each) for each in leases])


async def delete_leases(tx: Tx, leases: Sequence[Lease]) -> set[str]:
    """Delete leases that no heartbeat has renewed meanwhile; return whose are gone."""
    rows = await tx.each(
        "delete_leases",
        [(x.worker_id, x.token, x.lease_until_ms, x.suspect_until_ms) for x in leases],
    )
    return {cast("str", row[0]) for row in rows}


async def keep_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Note the leases of workers that are about to go offline, as they are now."""
    await tx.each("keep_leases", [(each,) for each in sorted(worker_ids)])


async def read_ended_leases(tx: Tx, worker_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return until when the lease of each offline worker would have lasted, and its length."""
    rows = await tx.each("read_ended_leases", [(each,) for each in sorted(worker_ids)])
    return {cast("str", row[0]): (cast("int", row[1]), cast("int", row[2])) for row in rows}


async def drop_ended_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Forget the leases of workers that hold nothing more."""
    await tx.each("drop_ended_leases", [(each,) for each in sorted(worker_ids)])


async def drop_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Delete the leases of workers that end for another reason than silence."""
    await tx.each("drop_leases", [(each,) for each in sorted(worker_ids)])


async def fail_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Count a failed call to served workers."""
    await tx.each("fail_leases", [(each,) for each in sorted(worker_ids)])


async def suspect_leases(tx: Tx, leases: Sequence[Lease]) -> set[str]:
    """Write until when each worker is suspected, unless it has been heard meanwhile."""
    rows = await tx.each(
        "suspect_leases",
        [(each.worker_id, each.token, each.suspect_until_ms) for each in leases],
    )
    return {cast("str", row[0]) for row in rows}


async def resume_leases(tx: Tx, leases: Sequence[Lease]) -> None:
    """Write that suspected workers are here again."""
    await tx.each("resume_leases", [(each.worker_id, each.server_id) for each in leases])
