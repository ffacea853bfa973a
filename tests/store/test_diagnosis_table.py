"""The reads of a diagnosis: their bound is for what the caller may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.run.record import RunLink
from tenure.store.table import closing as closing_table
from tenure.store.table import diagnosis as reads
from tenure.store.table import run_diagnosis as run_reads
from tenure.store.table.closing import Closing
from tenure.store.table.diagnosis import Extent
from tenure.store.table.listing import Onlooker
from tenure.store.transaction import Store, Tx
from tests.store.rows import (
    NAMESPACE,
    NOW,
    add_workers,
    held,
    insert,
    lease,
    offline,
    worker,
    worker_id,
)

# In every order that the statements have, it comes first.
OTHER = "aaa/default"
LATER = NOW + 10**6

READS: dict[str, Callable[[Tx, Extent], Awaitable[Iterable[Any]]]] = {
    "fleet": lambda tx, extent: reads.count_fleet(tx, extent, Onlooker(NOW)),
    "sdks": reads.count_sdks,
    "offered": reads.list_offered,
    "stuck leases": lambda tx, extent: reads.list_stuck_leases(tx, extent, before_ms=LATER),
    "unreleased": lambda tx, extent: reads.list_unreleased(tx, extent, before_ms=LATER),
    "overdue": lambda tx, extent: reads.list_overdue(tx, extent, before_ms=LATER),
    "closings": lambda tx, extent: run_reads.list_late_closings(tx, extent, before_ms=LATER),
}


@pytest.fixture
async def crowded(store: Store) -> Store:
    """A store in which another namespace has more of everything, and had it earlier."""
    for first, namespace in ((10, OTHER), (20, OTHER), (30, NAMESPACE)):
        gone = offline(first + 1, NOW + first, namespace=namespace, release_pending=True)
        await add_workers(
            store,
            [worker(first, namespace=namespace, types=(f"mail-{first}",)), gone],
            [lease(first, namespace=namespace, lease_until_ms=NOW + first)],
        )
        owner_id = worker_id(first)
        child = held(first, namespace=namespace, due_at_ms=NOW + first)
        await insert(store, replace(child, link=RunLink(parent_id=owner_id)))
        ended_at_ms = NOW + first
        closing = Closing(namespace, owner_id, owner_id, is_group=False, ended_at_ms=ended_at_ms)
        await store.transaction(partial(closing_table.insert_closings, closings=[closing]))
    return store


def namespaces_of(found: Iterable[Any]) -> set[str]:
    return {each[0] if isinstance(each, tuple) else each.namespace for each in found}


@pytest.mark.parametrize("name", READS)
async def test_what_others_have_takes_no_room(crowded: Store, name: str) -> None:
    async def seen(*namespaces: str, amount: int) -> set[str]:
        extent = Extent(namespaces, amount)
        return namespaces_of(await crowded.read(lambda tx: READS[name](tx, extent)))

    assert await seen(NAMESPACE, amount=1) == {NAMESPACE}
    assert await seen("nobody/default", amount=1) == set()
    assert await seen(NAMESPACE, OTHER, amount=10) == {NAMESPACE, OTHER}
    assert await seen(amount=10) == {NAMESPACE, OTHER}
    assert len(await seen(amount=1)) == 1
