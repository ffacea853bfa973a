"""Leases and servers as rows."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.worker.lease import Beat, Lease
from tenure.store.table import lease as lease_table
from tenure.store.table.lease import Lapsed
from tenure.store.transaction import Store
from tests.store.rows import NAMESPACE, NOW, lease, server_id, stored_lease, worker_id


async def add(store: Store, *leases: Lease) -> None:
    await store.transaction(lambda tx: lease_table.insert_leases(tx, leases))


async def lapsed(store: Store, now_ms: int, amount: int = 10) -> list[Lapsed]:
    found = await store.transaction(
        lambda tx: lease_table.load_lapsed(tx, now_ms=now_ms, amount=amount)
    )
    return sorted(found, key=lambda each: each.lease.worker_id)


async def test_a_lease_comes_back_as_it_was_written(store: Store) -> None:
    record = lease(1, token=2**40, previous_beat_at_ms=NOW - 1)
    await add(store, record)
    assert await stored_lease(store, 1) == record
    assert await stored_lease(store, 2) is None


async def test_a_heartbeat_renews_and_returns_the_lease_as_it_is_stored(store: Store) -> None:
    await add(store, lease(1, token=4))
    beat = Beat(
        token=4,
        server_id=server_id(2),
        lease_ms=20_000,
        total_completed=2**40,
        failed_delta=3,
        active_count=5,
        loop_lag_ms=6,
        stuck_count=7,
    )
    beats = [(worker_id(1), NAMESPACE, beat)]
    renewed = await store.transaction(lambda tx: lease_table.beat_leases(tx, beats, NOW + 100))
    stored = await stored_lease(store, 1)
    assert renewed == [stored]
    assert stored == lease(
        1,
        token=5,
        server_id=server_id(2),
        lease_ms=20_000,
        lease_until_ms=NOW + 20_100,
        beat_at_ms=NOW + 100,
        previous_beat_at_ms=NOW,
        total_completed=2**40,
        total_failed=3,
        active_count=5,
        loop_lag_ms=6,
        stuck_count=7,
    )


async def test_a_heartbeat_of_another_namespace_finds_nothing(store: Store) -> None:
    await add(store, lease(1))
    beats = [(worker_id(1), "other/default", Beat(token=1, server_id=server_id(1)))]
    assert await store.transaction(lambda tx: lease_table.beat_leases(tx, beats, NOW)) == []
    assert await stored_lease(store, 1) == lease(1)


async def test_leases_that_seem_to_be_over_come_with_the_last_sign_of_their_server(
    store: Store,
) -> None:
    await add(
        store,
        lease(1, lease_until_ms=NOW),
        lease(2, lease_until_ms=NOW + 1),
        lease(3, lease_until_ms=NOW - 1, server_id=server_id(2)),
        lease(4),
    )
    suspect = lease(4, suspect_until_ms=NOW)
    await store.transaction(lambda tx: lease_table.suspect_leases(tx, [suspect]))
    await store.transaction(lambda tx: tx.one("touch_server", server_id(1), NOW - 500, "", 0))
    assert await lapsed(store, NOW) == [
        Lapsed(lease(1, lease_until_ms=NOW), NOW - 500, 3),
        Lapsed(lease(3, lease_until_ms=NOW - 1, server_id=server_id(2)), None, None),
        Lapsed(suspect, NOW - 500, 3),
    ]
    assert len(await lapsed(store, NOW, amount=2)) == 2


async def test_the_leases_of_servers_are_counted(store: Store) -> None:
    await add(store, lease(1), lease(2), lease(3, server_id=server_id(2)))
    servers = [server_id(number) for number in (1, 2, 3)]
    counts = await store.transaction(lambda tx: lease_table.count_leases(tx, servers))
    assert {key: count for key, count in counts.items() if count} == {
        server_id(1): 2,
        server_id(2): 1,
    }


async def test_a_lease_longer_than_it_was_granted_is_clamped(store: Store) -> None:
    await add(store, lease(1, lease_until_ms=NOW + 99_000), lease(2, lease_until_ms=NOW + 7))
    rows = await store.transaction(lambda tx: tx.one("clamp_leases", NOW))
    assert [row[0] for row in rows] == [worker_id(1)]
    assert await stored_lease(store, 1) == lease(1, lease_until_ms=NOW + 15_000)
    assert await stored_lease(store, 2) == lease(2, lease_until_ms=NOW + 7)


async def test_failed_calls_are_counted_until_a_heartbeat(store: Store) -> None:
    await add(store, lease(1), lease(2))
    for _ in range(2):
        await store.transaction(lambda tx: lease_table.fail_leases(tx, [worker_id(1)]))
    assert await stored_lease(store, 1) == lease(1, failures=2)
    beats = [(worker_id(1), NAMESPACE, Beat(token=1, server_id=server_id(1)))]
    (renewed,) = await store.transaction(lambda tx: lease_table.beat_leases(tx, beats, NOW))
    assert renewed.failures == 0
    assert await stored_lease(store, 2) == lease(2)


async def test_dropped_leases_are_gone_and_others_stay(store: Store) -> None:
    await add(store, lease(1), lease(2), lease(3))
    dropped = [worker_id(1), worker_id(3), worker_id(9)]
    await store.transaction(lambda tx: lease_table.drop_leases(tx, dropped))
    assert [await stored_lease(store, number) for number in (1, 2, 3)] == [None, lease(2), None]


async def test_a_server_row_is_touched_and_forgotten_when_it_is_old(store: Store) -> None:
    for now_ms in (NOW - 20, NOW - 10):
        touch = (server_id(1), now_ms, "", 0)
        await store.transaction(lambda tx, touch=touch: tx.one("touch_server", *touch))  # type: ignore[misc]  # bound early
    await store.transaction(lambda tx: tx.one("touch_server", server_id(2), NOW, "", 0))
    assert await store.transaction(lambda tx: tx.one("delete_servers", NOW - 10)) == []
    rows = await store.transaction(lambda tx: tx.one("delete_servers", NOW - 9))
    assert [row[0] for row in rows] == [server_id(1)]


async def test_a_resumed_session_clears_the_suspicion(store: Store) -> None:
    await add(store, lease(1))
    suspect = lease(1, suspect_until_ms=NOW + 3_000)
    told = await store.transaction(lambda tx: lease_table.suspect_leases(tx, [suspect]))
    assert told == {worker_id(1)}
    assert await stored_lease(store, 1) == suspect
    resumed = replace(suspect, server_id=server_id(2))
    await store.transaction(lambda tx: lease_table.resume_leases(tx, [resumed]))
    assert await stored_lease(store, 1) == lease(1, server_id=server_id(2))
