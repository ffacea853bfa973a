"""What servers of one database share: their rows, their secrets, the space probe, lock waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tenure.store.transaction import Position, Tx

VACUUM_TASKS = "vacuum_tasks"
"""The name of the statement that vacuums the live table; it cannot be in a transaction."""


async def touch_server(tx: Tx, server_id: str, *, now_ms: int, position: Position) -> None:
    """Write that a server is alive, and the position of the database that it has seen."""
    await tx.one("touch_server", server_id, now_ms, position.system_id, position.timeline)


async def read_secrets(tx: Tx) -> dict[str, tuple[bytes, int]]:
    """Return the shared keys and when they were made, by their names."""
    rows = await tx.one("list_secrets")
    return {cast("str", row[0]): cast("tuple[bytes, int]", tuple(row[1:])) for row in rows}


async def insert_secrets(tx: Tx, secrets: Mapping[str, bytes], *, now_ms: int) -> None:
    """Write shared keys; existing ones stay."""
    await tx.each("insert_secrets", [(name, value, now_ms) for name, value in secrets.items()])


async def free_space(tx: Tx) -> None:
    """Delete the rows of the space probe."""
    await tx.one("free_space")


async def reserve_space(tx: Tx, content: bytes) -> None:
    """Store as much as a large task needs."""
    await tx.one("reserve_space", content)


async def limit_lock_wait(tx: Tx, wait_ms: int) -> None:
    """Limit how long a transaction waits for rows."""
    await tx.one("limit_lock_wait", wait_ms)
