"""Workers as rows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.filter import WorkerFilter
from tenure.core.queue import Queue
from tenure.core.task.crash_guard import ControlGroup
from tenure.core.worker.record import EndReason, Worker, WorkerMode, WorkerStatus
from tenure.store.failure import FenceLost, Refused
from tenure.store.table import lease as lease_table
from tenure.store.table import listing
from tenure.store.table import queue as queue_table
from tenure.store.table import worker as worker_table
from tenure.store.table.listing import Onlooker, Slice, Total
from tenure.store.transaction import Store
from tests.store.rows import (
    HIGHEST_ID,
    NAMESPACE,
    NOW,
    QUEUE,
    lease,
    offline,
    stored_worker,
    worker,
    worker_id,
)

FULL = worker(
    1,
    types=("mail", "żółw"),
    status=WorkerStatus.OFFLINE,
    mode=WorkerMode.SERVED,
    slots=7,
    name="mailer",
    hostname="host",
    pid=2**31 - 1,
    software_version="1.2.3",
    labels={"zone": "a"},
    session_no=4,
    end_reason=EndReason.EVICTED,
    drain_at_ms=NOW + 1,
    ended_at_ms=NOW + 2,
    release_pending=True,
    version=9,
)


async def add(store: Store, *workers: Worker) -> None:
    await store.transaction(lambda tx: worker_table.insert_workers(tx, workers))


async def ids_of(
    store: Store, before_id: str = HIGHEST_ID, amount: int = 10, **chosen: Any
) -> list[str]:
    part = Slice(before_id, amount)
    where = WorkerFilter(**chosen)
    found, _ = await store.read(
        lambda tx: listing.list_workers(tx, NAMESPACE, where, part, Onlooker(NOW))
    )
    return [each.id for each, _ in found]


@pytest.mark.parametrize("record", [worker(1), FULL])
async def test_a_worker_comes_back_as_it_was_written(store: Store, record: Worker) -> None:
    await add(store, record)
    assert await stored_worker(store, 1) == record
    assert await store.transaction(lambda tx: worker_table.lock_workers(tx, [record.id])) == [
        record
    ]
    (shared,) = await store.transaction(lambda tx: worker_table.share_workers(tx, [record.id]))
    assert shared.worker == record


async def test_a_receiver_comes_with_the_brakes_of_its_queue(store: Store) -> None:
    await add(store, worker(1), worker(2, queue="free"), worker(3, namespace="other/default"))
    brakes = Queue(NAMESPACE, QUEUE, is_paused=True, concurrency_max=3)
    await store.transaction(lambda tx: queue_table.save_queues(tx, [brakes]))
    asked = [worker_id(number) for number in (3, 1, 2, 9)]
    found = await store.transaction(lambda tx: worker_table.share_workers(tx, asked))
    queues = {each.worker.id: each.queue for each in found}
    assert queues == {worker_id(1): brakes, worker_id(2): None, worker_id(3): None}


async def test_an_update_writes_what_may_change_and_raises_the_version(store: Store) -> None:
    await add(store, worker(1, version=9))
    await store.transaction(lambda tx: worker_table.update_workers(tx, [FULL]))
    never_changes = worker(1)
    assert await stored_worker(store, 1) == replace(
        FULL,
        version=10,
        types=never_changes.types,
        mode=never_changes.mode,
        slots=never_changes.slots,
        name=never_changes.name,
        hostname=never_changes.hostname,
        pid=never_changes.pid,
        software_version=never_changes.software_version,
        labels=never_changes.labels,
    )


async def test_an_update_on_another_version_is_fenced_and_changes_nothing(store: Store) -> None:
    await add(store, worker(1), worker(2, version=3))
    stale = [
        replace(each, status=WorkerStatus.DRAINING, drain_at_ms=NOW)
        for each in (worker(1), worker(2, version=2))
    ]
    with pytest.raises(FenceLost) as failure:
        await store.transaction(lambda tx: worker_table.update_workers(tx, stale))
    assert worker_id(2) in failure.value.ids
    assert await stored_worker(store, 1) == worker(1)
    assert await stored_worker(store, 2) == worker(2, version=3)


async def test_an_instance_key_is_unique_in_its_namespace(store: Store) -> None:
    await add(store, worker(1, instance_key="k"))
    await add(store, worker(2, instance_key="k", namespace="other/default"))
    with pytest.raises(Refused):
        await add(store, worker(3, instance_key="k"))


async def test_a_name_is_unique_among_live_workers_of_a_namespace(store: Store) -> None:
    await add(store, offline(1, name="mailer"), worker(2, name="mailer"))
    await add(store, worker(3, name="mailer", namespace="other/default"))
    await add(store, worker(4), worker(5))
    with pytest.raises(Refused):
        await add(store, worker(6, name="mailer"))


async def test_a_registration_finds_its_own_key_and_the_live_holder_of_its_name(
    store: Store,
) -> None:
    await add(
        store,
        worker(1, instance_key="mine"),
        worker(2, name="mailer"),
        offline(3, name="mailer"),
        worker(4),
        worker(5, namespace="other/default", instance_key="mine", name="mailer"),
    )

    async def found(key: str, name: str) -> list[str]:
        rows = await store.transaction(
            lambda tx: worker_table.find_workers(
                tx, namespace=NAMESPACE, instance_key=key, name=name
            )
        )
        return [each.id for each in rows]

    assert await found("mine", "mailer") == [worker_id(1), worker_id(2)]
    assert await found("mine", "") == [worker_id(1)]
    assert await found("new", "") == []


async def test_an_offline_worker_stays_on_the_list_until_its_tasks_are_released(
    store: Store,
) -> None:
    await add(store, offline(1, release_pending=True), offline(2), worker(3))
    await add(store, offline(4, release_pending=True))

    async def releasing(amount: int) -> list[str]:
        return await store.read(lambda tx: worker_table.load_releasing(tx, amount=amount))

    assert await releasing(10) == [worker_id(1), worker_id(4)]
    assert await releasing(1) == [worker_id(1)]


async def test_workers_are_listed_newest_first_with_filters(store: Store) -> None:
    await add(
        store,
        worker(1),
        worker(2, queue="other"),
        offline(3),
        worker(4, namespace="other/default"),
        worker(5),
    )
    assert await ids_of(store) == [worker_id(number) for number in (5, 3, 2, 1)]
    assert await ids_of(store, amount=2) == [worker_id(5), worker_id(3)]
    assert await ids_of(store, before_id=worker_id(3)) == [worker_id(2), worker_id(1)]
    assert await ids_of(store, queue="other") == [worker_id(2)]
    assert await ids_of(store, status=WorkerStatus.OFFLINE) == [worker_id(3)]
    assert await ids_of(store, status=WorkerStatus.ONLINE, queue=QUEUE) == [
        worker_id(5),
        worker_id(1),
    ]


@pytest.mark.parametrize(
    "changes", [{"status": "gone"}, {"status": "offline"}, {"slots": 0}, {"types": "[]"}]
)
async def test_the_database_repeats_the_invariants_of_a_worker(
    store: Store, changes: dict[str, object]
) -> None:
    good: dict[str, object] = {
        "id": worker_id(1),
        "namespace": NAMESPACE,
        "queue": QUEUE,
        "types": '["mail"]',
        "instance_key": "k",
        "registered_at_ms": NOW,
        "status": "online",
        "mode": "session",
        "slots": 1,
        "name": "",
        "hostname": "",
        "pid": 1,
        "software_version": "",
        "labels": "{}",
        "session_no": 0,
        "end_reason": None,
        "drain_at_ms": None,
        "ended_at_ms": None,
        "release_pending": False,
        "version": 0,
        "key_id": "",
    }
    row = tuple({**good, **changes}.values())
    with pytest.raises(Refused):
        await store.transaction(lambda tx: tx.each("insert_workers", [row]))


async def test_only_workers_that_are_long_gone_and_released_are_forgotten(store: Store) -> None:
    await add(
        store,
        offline(1, NOW - 3),
        offline(2, NOW - 2, release_pending=True),
        offline(3, NOW - 1),
        offline(4, NOW),
        worker(5),
        offline(6, NOW - 4),
    )

    async def forget(amount: int) -> list[str]:
        rows = await store.transaction(lambda tx: tx.one("delete_offline_workers", NOW, amount))
        return sorted(str(row[0]) for row in rows)

    assert await forget(1) == [worker_id(6)]
    assert await forget(10) == [worker_id(1), worker_id(3)]
    assert await forget(10) == []
    assert await ids_of(store) == [worker_id(number) for number in (5, 4, 2)]


async def test_the_control_group_are_other_workers_of_the_queue(store: Store) -> None:
    lost = [
        offline(number, NOW - number, end_reason=EndReason.LEASE_EXPIRED) for number in range(1, 6)
    ]
    await add(
        store,
        *lost,
        offline(6, NOW, end_reason=EndReason.EVICTED),
        offline(7, NOW, end_reason=EndReason.SUPERSEDED, queue="other"),
        offline(8, NOW, end_reason=EndReason.SUPERSEDED, namespace="x/y"),
        worker(9),
        worker(10),
        worker(11, queue="other"),
    )
    leases = [lease(number) for number in (9, 10, 11)]
    await store.transaction(lambda tx: lease_table.insert_leases(tx, leases))

    async def count(**changes: Any) -> ControlGroup:
        asked = {"since_ms": NOW - 4, "seen_max": 100, **changes}
        return await store.read(lambda tx: worker_table.count_control_group(tx, lost[0], **asked))

    # The first is the one that is judged, the fifth died too long ago.
    assert await count() == ControlGroup(3, 2)
    await store.transaction(lambda tx: worker_table.mark_ends_explained(tx, [worker_id(2)]))
    assert await count() == ControlGroup(2, 2)
    assert (await count(seen_max=1)).live_count == 1


async def test_a_list_of_workers_looks_at_so_many_and_goes_on_behind_them(store: Store) -> None:
    await add(store, *(worker(number, queue="ab"[number % 5 == 0]) for number in range(1, 21)))
    where = WorkerFilter(queue="b")

    async def look(position: str) -> tuple[list[str], str | None]:
        part = Slice(position, 10, 3)
        found, end_id = await store.scan(
            lambda tx: listing.list_workers(tx, NAMESPACE, where, part, Onlooker(NOW))
        )
        return [each.id for each, _ in found], end_id

    looks = [await look(HIGHEST_ID)]
    while (end_id := looks[-1][1]) is not None:
        looks.append(await look(end_id))
    found = [[int(each[-4:], 16) for each in ids] for ids, _ in looks]
    assert found == [[20], [15], [], [10], [], [5], []]

    async def count(amount: int) -> Total:
        return await store.read(
            lambda tx: listing.count_workers(tx, NAMESPACE, where, Onlooker(NOW), amount=amount)
        )

    assert await count(21) == Total(4, is_exact=True)
    assert await count(20) == Total(4, is_exact=False)
    assert await count(6) == Total(2, is_exact=False)
