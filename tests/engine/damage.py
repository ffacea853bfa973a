"""Changes stored bytes behind the back of every server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from tests.engine.world import World

FLIPS: Final = 24


def flips(data: bytes, seed: int = 1) -> Iterator[bytes]:
    """Yield the data with one bit flipped: a sample of all bits, its ends among them."""
    size = len(data) * 8
    chosen = {0, size - 1, *random.Random(seed).sample(range(size), k=min(FLIPS, size))}
    for bit in sorted(chosen):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


async def write(world: World, table: str, task_id: str, column: str, data: bytes) -> None:
    """Change stored bytes behind the back of every engine."""
    text = f"X'{data.hex()}'" if world.dialect == "sqlite" else f"'\\x{data.hex()}'::bytea"
    key = "task_id" if table == "attempts" else "id"
    await world.database.execute(f"UPDATE {table} SET {column} = {text} WHERE {key} = '{task_id}'")


async def stored(world: World, table: str, task_id: str) -> dict[str, Any]:
    key = "task_id" if table == "attempts" else "id"
    (row,) = await world.database.rows(f"SELECT * FROM {table} WHERE {key} = '{task_id}'")
    return row
