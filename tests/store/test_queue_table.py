"""Queues and namespaces as rows."""

from __future__ import annotations

from tenure.core.queue import Namespace, Queue
from tenure.store.table import listing
from tenure.store.table import queue as queue_table
from tenure.store.table.listing import Slice
from tenure.store.transaction import Store
from tests.store.rows import NAMESPACE, NOW

MAIL = Queue(NAMESPACE, "mail", is_paused=True, concurrency_max=7)
SMS = Queue(NAMESPACE, "sms", concurrency_max=2)


async def test_a_queue_comes_back_as_it_was_saved(store: Store) -> None:
    foreign = Queue("other/default", "mail", concurrency_max=1)
    await store.transaction(lambda tx: queue_table.save_queues(tx, [MAIL, SMS, foreign]))
    asked = [(NAMESPACE, "mail"), (NAMESPACE, "sms"), (NAMESPACE, "unknown")]
    assert await store.transaction(lambda tx: queue_table.lock_queues(tx, asked)) == [MAIL, SMS]
    names = await store.read(lambda tx: listing.find_queues(tx, NAMESPACE, Slice("", 10)))
    assert names == ["mail", "sms"]
    found = await store.read(lambda tx: listing.read_queues(tx, NAMESPACE, ["sms", "unknown"]))
    assert found == [SMS]


async def test_saving_a_queue_again_raises_its_version(store: Store) -> None:
    for _ in range(2):
        await store.transaction(lambda tx: queue_table.save_queues(tx, [MAIL]))
    changed = Queue(NAMESPACE, "mail", is_paused=False, concurrency_max=0)
    await store.transaction(lambda tx: queue_table.save_queues(tx, [changed]))
    asked = [(NAMESPACE, "mail")]
    (stored,) = await store.transaction(lambda tx: queue_table.lock_queues(tx, asked))
    assert stored == Queue(NAMESPACE, "mail", is_paused=False, concurrency_max=0, version=2)


async def test_a_namespace_is_made_once_and_can_be_disabled(store: Store) -> None:
    for created_at_ms in (NOW, NOW + 1):
        rows = [(NAMESPACE, created_at_ms)]
        await store.transaction(lambda tx, rows=rows: tx.each("insert_namespaces", rows))  # type: ignore[misc]  # bound early
    assert await store.read(lambda tx: queue_table.read_namespaces(tx, [NAMESPACE, "x/y"])) == [
        Namespace(NAMESPACE, NOW)
    ]
    await store.transaction(lambda tx: tx.each("set_namespace", [(NAMESPACE, True)]))
    listed = await store.read(lambda tx: tx.one("list_namespaces", "", 10))
    assert [bool(row[2]) for row in listed if row[0] == NAMESPACE] == [True]
