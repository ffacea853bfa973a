"""What servers have counted, a row per minute, queue and server; the body is the engine's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from tenure.store.transaction import Tx


class MinuteRow(msgspec.Struct, frozen=True, gc=False):
    """One minute of a queue at one server; an empty queue is the whole namespace."""

    namespace: str
    queue: str
    at_ms: int
    server_id: str
    body: bytes


async def save_minutes(tx: Tx, rows: Iterable[MinuteRow]) -> None:
    """Write minutes; one that is there is replaced."""
    await tx.each("save_statistics", [msgspec.structs.astuple(each) for each in rows])


async def list_minutes(
    tx: Tx, namespace: str, queue: str, *, from_ms: int, to_ms: int, amount: int
) -> list[tuple[int, bytes]]:
    """Return the minutes of a queue of all servers, oldest first."""
    rows = await tx.one("list_statistics", namespace, queue, from_ms, to_ms, amount)
    return [cast("tuple[int, bytes]", tuple(row)) for row in rows]


async def delete_minutes(tx: Tx, *, before_ms: int, amount: int) -> int:
    """Delete minutes from before; return how many."""
    return len(await tx.one("delete_statistics", before_ms, amount))
