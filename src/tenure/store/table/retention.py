"""Deletion of old rows, in bounded batches or by whole days."""

from __future__ import annotations

from tenure.store.table.seat import delete_seats
from tenure.store.table.stop import take_stops
from tenure.store.transaction import Tx


async def keep_days(tx: Tx, *, first: int, today: int, last: int) -> None:
    """Create partitions for the history of the next days, and drop those before the first one."""
    for day in range(today, last + 1):
        await tx.one("ensure_days", day)
    await tx.one("drop_days", first)


async def delete_history(tx: Tx, *, before_ms: int, amount: int) -> int:
    """Delete finished tasks if there are no partitions to drop; return how many."""
    return len(await tx.one("delete_history", before_ms, amount))


async def delete_journals(tx: Tx, *, before_ms: int, amount: int) -> int:
    """Delete entries of runs that ended before, where no day has them; return how many."""
    return len(await tx.one("delete_journals", before_ms, amount))


async def delete_groups(tx: Tx, *, before_ms: int, amount: int) -> int:
    """Delete groups and their results with the journals that they belong to; return how many."""
    # Ids begin with the instant at which they were made.
    text = f"{before_ms:012x}"
    before_id = f"{text[:8]}-{text[8:]}-0000-0000-000000000000"
    entries = await tx.one("delete_group_entries", before_id, before_ms, amount)
    return max(len(entries), len(await tx.one("delete_groups", before_id, before_ms, amount)))


async def delete_old_keys(tx: Tx, *, before_ms: int, amount: int) -> int:
    """Delete idempotency keys of tasks that ended before; return how many."""
    return len(await tx.one("delete_old_keys", before_ms, amount))


async def delete_offline_workers(tx: Tx, *, before_ms: int, amount: int) -> int:
    """Delete workers that ended before, with their seats and stops; return how many."""
    rows = await tx.one("delete_offline_workers", before_ms, amount)
    worker_ids = [str(row[0]) for row in rows]
    await take_stops(tx, worker_ids)
    await delete_seats(tx, worker_ids)
    return len(rows)


async def delete_servers(tx: Tx, *, before_ms: int) -> None:
    """Delete the rows of servers that were last seen before."""
    await tx.one("delete_servers", before_ms)


async def delete_audit(tx: Tx, *, before_ms: int, amount: int) -> int:
    """Delete records of the audit log from before; return how many."""
    return len(await tx.one("delete_audit", before_ms, amount))
