"""Idempotency keys as rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.store.failure import Refused
from tenure.store.table import idempotency as idempotency_table
from tenure.store.table import task as task_table
from tenure.store.table.idempotency import Key
from tenure.store.transaction import Store
from tests.store.rows import NAMESPACE, NOW, finished_from, insert, pending, task_id

DIGEST = bytes(range(32))


async def add(store: Store, *keys: tuple[str, int, int]) -> None:
    """Write keys as (key, number of the task, created_at)."""
    rows = [
        replace(key(name, number, None, is_live=True), created_at_ms=at_ms)
        for name, number, at_ms in keys
    ]
    await store.transaction(lambda tx: idempotency_table.insert_keys(tx, rows))


async def locked(store: Store, *keys: str) -> list[Key]:
    asked = [(NAMESPACE, key) for key in keys]
    return await store.transaction(lambda tx: idempotency_table.lock_keys(tx, asked))


async def finish(store: Store, number: int, at_ms: int) -> None:
    done = finished_from(pending(number), finished_at_ms=at_ms)
    await store.transaction(lambda tx: task_table.finish_tasks(tx, [done]))


def key(name: str, number: int, finished_at_ms: int | None, *, is_live: bool) -> Key:
    return Key(NAMESPACE, name, task_id(number), DIGEST, finished_at_ms, is_live)


async def test_a_key_comes_with_what_became_of_its_task(store: Store) -> None:
    await insert(store, pending(1), pending(2))
    await add(store, ("live", 1, NOW), ("done", 2, NOW), ("gone", 3, NOW))
    await finish(store, 2, NOW + 5)
    assert await locked(store, "live", "done", "gone", "unknown") == [
        key("done", 2, NOW + 5, is_live=False),
        key("gone", 3, None, is_live=False),
        key("live", 1, None, is_live=True),
    ]


async def test_a_key_is_unique_in_its_namespace(store: Store) -> None:
    await add(store, ("k", 1, NOW))
    foreign = [replace(key("k", 2, None, is_live=True), namespace="other/default")]
    await store.transaction(lambda tx: idempotency_table.insert_keys(tx, foreign))
    with pytest.raises(Refused):
        await add(store, ("k", 2, NOW))
    assert await locked(store, "k") == [key("k", 1, None, is_live=False)]


async def test_a_key_is_deleted_only_for_the_task_it_stands_for(store: Store) -> None:
    await add(store, ("a", 1, NOW), ("b", 2, NOW))
    gone = [key("a", 1, None, is_live=False), key("b", 1, None, is_live=False)]
    await store.transaction(lambda tx: idempotency_table.delete_keys(tx, gone))
    assert await locked(store, "a", "b") == [key("b", 2, None, is_live=False)]


async def test_a_key_outlives_its_task_by_its_time_and_a_live_task_for_ever(store: Store) -> None:
    before_ms = NOW - 1_000
    await insert(store, pending(1), pending(2), pending(3))
    await add(
        store,
        ("young", 9, before_ms),
        ("live", 1, before_ms - 10),
        ("ended lately", 2, before_ms - 10),
        ("ended long ago", 3, before_ms - 10),
        ("task forgotten", 8, before_ms - 5),
    )
    await finish(store, 2, before_ms)
    await finish(store, 3, before_ms - 1)

    async def forget(amount: int) -> list[object]:
        rows = await store.transaction(lambda tx: tx.one("delete_old_keys", before_ms, amount))
        return [row[0] for row in rows]

    assert await forget(1) == ["ended long ago"]
    assert await forget(10) == ["task forgotten"]
    assert await forget(10) == []
    left = await locked(store, "young", "live", "ended lately", "ended long ago")
    assert [each.key for each in left] == ["ended lately", "live", "young"]
