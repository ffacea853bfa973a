"""Keys, disabled namespaces and the audit log as rows."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.audit import ALL_AUDIT, AuditFilter, AuditRecord
from tenure.core.queue import Namespace
from tenure.store.failure import Refused
from tenure.store.postgres import PostgresStore
from tenure.store.table import access as access_table
from tenure.store.table import queue as queue_table
from tenure.store.table.access import KeyPlace
from tenure.store.transaction import Store, Tx
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.store.rows import NOW

LAST = KeyPlace(2**60, "", 100)
NEWEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
SCOPE = ("acme/a", "acme/b")
WAITING_SQL = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def key(letter: str, **changes: Any) -> ApiKey:
    fields: dict[str, Any] = {
        "id": letter * 16,
        "name": f"key-{letter}",
        "role": Role.CLIENT,
        "secret_digest": letter.encode() * 32,
        "created_at_ms": NOW,
    }
    return ApiKey(**{**fields, **changes})


def record(number: int, *namespaces: str, **changes: Any) -> AuditRecord:
    fields: dict[str, Any] = {
        "id": f"019b0000-0000-7000-8000-{number:012x}",
        "at_ms": NOW + number,
        "actor": "a" * 16,
        "action": "key.create",
        "target": "b" * 16,
        "namespaces": namespaces,
        "detail": "client key ci",
    }
    return AuditRecord(**{**fields, **changes})


async def insert_keys(store: Store, *keys: ApiKey) -> None:
    await store.transaction(lambda tx: access_table.insert_keys(tx, keys))


async def read_key(store: Store, key_id: str) -> ApiKey:
    (found,) = await store.read(lambda tx: access_table.read_keys(tx, [key_id]))
    return found


async def test_a_key_comes_back_as_it_was_written(store: Store) -> None:
    plain = key("a")
    full = key(
        "b",
        role=Role.ADMIN,
        namespaces=SCOPE,
        created_by="a" * 16,
        expires_at_ms=NOW + 5,
        revoked_at_ms=NOW + 1,
    )
    await insert_keys(store, plain, full)
    asked = [plain.id, full.id, "c" * 16]
    assert await store.read(lambda tx: access_table.read_keys(tx, asked)) == [plain, full]
    assert await store.transaction(lambda tx: access_table.lock_keys(tx, asked)) == [plain, full]


async def test_two_keys_cannot_have_the_same_id(store: Store) -> None:
    await insert_keys(store, key("a"))
    with pytest.raises(Refused):
        await insert_keys(store, key("a", name="other"))


async def test_the_first_revocation_stays(store: Store) -> None:
    await insert_keys(store, key("a"))
    for at_ms in (NOW + 1, NOW + 2):
        revoked = key("a", revoked_at_ms=at_ms)
        await store.transaction(lambda tx, revoked=revoked: access_table.revoke_keys(tx, [revoked]))  # type: ignore[misc]  # bound early
    assert (await read_key(store, "a" * 16)).revoked_at_ms == NOW + 1


async def test_the_last_use_of_a_key_never_goes_back(store: Store) -> None:
    await insert_keys(store, key("a"), key("b"))
    for used in ({"a" * 16: NOW + 5, "c" * 16: NOW}, {"a" * 16: NOW + 3}):
        await store.transaction(lambda tx, used=used: access_table.touch_keys(tx, used))  # type: ignore[misc]  # bound early
    assert (await read_key(store, "a" * 16)).last_used_at_ms == NOW + 5
    assert (await read_key(store, "b" * 16)).last_used_at_ms is None


async def test_a_server_reads_live_keys_and_disabled_namespaces(store: Store) -> None:
    live, ending = key("a"), key("b", expires_at_ms=2**50)
    await insert_keys(store, live, ending, key("c", expires_at_ms=1), key("d", revoked_at_ms=NOW))

    async def disable(tx: Tx) -> None:
        await tx.each("insert_namespaces", [("acme/a", NOW), ("acme/b", NOW)])
        await queue_table.set_namespaces(tx, [Namespace("acme/b", NOW, is_disabled=True)])

    await store.transaction(disable)
    state = await store.read(access_table.read_state)
    assert state.keys == [live, ending]
    assert state.disabled == {"acme/b"}
    assert state.has_keys
    assert await store.read(lambda tx: access_table.count_live_keys(tx, state.now_ms)) == 2


async def test_a_server_that_had_a_key_is_told_so_for_ever(store: Store) -> None:
    assert not (await store.read(access_table.read_state)).has_keys
    await insert_keys(store, key("a", revoked_at_ms=NOW))
    state = await store.read(access_table.read_state)
    assert (state.keys, state.has_keys) == ([], True)


async def test_each_change_raises_the_version(store: Store) -> None:
    first, _ = await store.read(access_table.read_version)
    assert await store.transaction(access_table.lock_version) == first
    assert await store.transaction(access_table.raise_version) == first + 1
    assert (await store.read(access_table.read_version))[0] == first + 1


async def test_servers_change_access_one_after_the_other(
    postgres_store: PostgresStore, dsn: str
) -> None:
    other = PostgresStore(dsn)
    await other.open()
    watcher = await asyncpg.connect(dsn)
    order: list[str] = []
    is_locked = asyncio.Event()

    async def first(tx: Tx) -> int:
        await access_table.lock_version(tx)
        is_locked.set()
        await eventually(lambda: watcher.fetchval(WAITING_SQL), "somebody who waits")
        order.append("first")
        return await access_table.raise_version(tx)

    async def second(tx: Tx) -> int:
        found = await access_table.lock_version(tx)
        order.append("second")
        return found

    try:
        async with asyncio.timeout(WAIT_S):
            changing = asyncio.create_task(postgres_store.transaction(first))
            await is_locked.wait()
            seen = await other.transaction(second)
            assert seen == await changing
    finally:
        await watcher.close()
        await other.close()
    assert order == ["first", "second"]


async def test_keys_are_listed_newest_first_from_anywhere(store: Store) -> None:
    older, newer, twin = key("b"), key("a", created_at_ms=NOW + 1), key("c")
    await insert_keys(store, older, newer, twin)
    listed = await store.read(lambda tx: access_table.list_keys(tx, (), LAST))
    assert listed == [newer, twin, older]
    behind = KeyPlace(newer.created_at_ms, newer.id, 1)
    assert await store.read(lambda tx: access_table.list_keys(tx, (), behind)) == [twin]
    behind = KeyPlace(twin.created_at_ms, twin.id, 9)
    assert await store.read(lambda tx: access_table.list_keys(tx, (), behind)) == [older]


async def test_a_scope_has_the_keys_that_are_for_it_or_less(store: Store) -> None:
    part, whole = key("a", namespaces=("acme/a",)), key("b", namespaces=SCOPE)
    wider = key("c", namespaces=("acme/a", "acme/c"))
    await insert_keys(store, part, whole, wider, key("d", namespaces=("acme/c",)), key("e"))
    listed = await store.read(lambda tx: access_table.list_keys(tx, SCOPE, LAST))
    assert listed == [whole, part]


async def list_audit(
    store: Store,
    *scope: str,
    where: AuditFilter = ALL_AUDIT,
    before_id: str = NEWEST,
    amount: int = 100,
) -> list[AuditRecord]:
    return await store.read(
        lambda tx: access_table.list_audit(tx, scope, where, before_id=before_id, amount=amount)
    )


async def test_audit_records_come_back_newest_first(store: Store) -> None:
    records = [record(1, "acme/a"), record(2), record(3, *SCOPE, actor="")]
    await store.transaction(lambda tx: access_table.insert_audit(tx, records))
    assert await list_audit(store) == records[::-1]
    assert await list_audit(store, amount=2) == [records[2], records[1]]
    assert await list_audit(store, before_id=records[1].id) == [records[0]]


async def test_audit_records_are_filtered(store: Store) -> None:
    drain = record(1, "acme/a", action="worker.drain")
    other = record(2, "acme/b", actor="c" * 16)
    both = record(3, *SCOPE)
    await store.transaction(lambda tx: access_table.insert_audit(tx, [drain, other, both]))
    assert await list_audit(store, where=AuditFilter(action="worker.drain")) == [drain]
    assert await list_audit(store, where=AuditFilter(actor="c" * 16)) == [other]
    assert await list_audit(store, where=AuditFilter(namespace="acme/b")) == [both, other]
    narrow = AuditFilter(namespace="acme/b", actor="a" * 16)
    assert await list_audit(store, where=narrow) == [both]


async def test_a_scope_has_the_records_that_concern_nothing_else(store: Store) -> None:
    inside, both = record(1, "acme/a"), record(2, *SCOPE)
    outside = [record(3, "acme/c"), record(4, "acme/a", "acme/c"), record(5)]
    await store.transaction(lambda tx: access_table.insert_audit(tx, [inside, both, *outside]))
    assert await list_audit(store, *SCOPE) == [both, inside]
    assert await list_audit(store, "acme/a") == [inside]


async def test_old_audit_records_are_deleted_in_bounded_numbers(store: Store) -> None:
    records = [record(number) for number in range(1, 6)]
    await store.transaction(lambda tx: access_table.insert_audit(tx, records))
    gone = await store.transaction(lambda tx: tx.one("delete_audit", NOW + 4, 2))
    assert len(gone) == 2
    assert await list_audit(store) == records[:1:-1]
    await store.transaction(lambda tx: tx.one("delete_audit", NOW + 4, 100))
    assert await list_audit(store) == [records[4], records[3]]


async def test_a_detail_of_a_record_may_be_empty(store: Store) -> None:
    plain = replace(record(1), detail="")
    await store.transaction(lambda tx: access_table.insert_audit(tx, [plain]))
    assert await list_audit(store) == [plain]
