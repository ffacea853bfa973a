"""The claim: which tasks it takes, in which order, and how many."""

from __future__ import annotations

import pytest

from tenure.core.task.record import Line, TaskState
from tenure.store.table import task as task_table
from tenure.store.transaction import Store
from tests.store.rows import (
    HIGHEST_ID,
    NOW,
    claim,
    demand,
    dispatched_from,
    held,
    insert,
    live,
    pending,
    task_id,
)


async def test_a_claim_takes_the_best_priority_then_the_earliest_then_the_lowest_id(
    store: Store,
) -> None:
    await insert(
        store,
        pending(1, priority=5, run_at_ms=NOW),
        pending(2, priority=5, run_at_ms=NOW),
        pending(3, priority=5, run_at_ms=NOW - 1),
        pending(4, priority=0, run_at_ms=NOW + 9),
        pending(5, priority=9, run_at_ms=NOW - 9),
    )
    assert await claim(store, demand()) == [task_id(n) for n in (4, 3, 1, 2, 5)]


async def test_a_claim_takes_no_more_than_it_asks_for(store: Store) -> None:
    await insert(store, *(pending(number) for number in range(1, 6)))
    assert await claim(store, demand(amount=2)) == [task_id(1), task_id(2)]
    assert await claim(store, demand(amount=0)) == []


async def test_a_claim_takes_only_the_type_queue_and_namespace_it_names(store: Store) -> None:
    await insert(
        store,
        pending(1, type="sms"),
        pending(2, queue="other"),
        pending(3, namespace="other/default"),
        pending(4),
    )
    assert await claim(store, demand()) == [task_id(4)]
    assert await claim(store, demand(type="sms")) == [task_id(1)]
    assert await claim(store, demand(queue="other")) == [task_id(2)]
    assert await claim(store, demand(namespace="other/default")) == [task_id(3)]
    assert await claim(store, demand(type="nobody")) == []


async def test_each_probe_of_a_claim_has_its_own_limit(store: Store) -> None:
    await insert(
        store,
        *(pending(number) for number in (1, 2, 3)),
        *(pending(number, type="sms") for number in (4, 5, 6)),
    )
    found = await claim(store, demand(amount=1), demand(type="sms", amount=2))
    assert found == [task_id(1), task_id(4), task_id(5)]


async def test_the_lines_are_claimed_apart(store: Store) -> None:
    await insert(
        store,
        pending(1, line=Line.FRESH),
        pending(2, line=Line.RETURNED),
        pending(3, line=Line.NONE, run_at_ms=NOW + 1_000),
    )
    assert await claim(store, demand(line=Line.FRESH)) == [task_id(1)]
    assert await claim(store, demand(line=Line.RETURNED)) == [task_id(2)]


@pytest.mark.parametrize("state", [TaskState.PAUSED, TaskState.WAITING])
async def test_a_task_in_no_line_is_never_claimed(store: Store, state: TaskState) -> None:
    await insert(store, pending(1, state=state, line=Line.NONE), held(2))
    assert await claim(store, demand(), demand(line=Line.RETURNED)) == []


async def test_a_mark_leaves_out_what_lies_before_it(store: Store) -> None:
    await insert(store, *(pending(number, run_at_ms=NOW + number) for number in (1, 2, 3)))
    marked = demand(priority_min=5, mark_run_at_ms=NOW + 2, mark_id=task_id(2))
    assert await claim(store, marked) == [task_id(2), task_id(3)]
    behind = demand(priority_min=5, mark_run_at_ms=NOW + 2, mark_id=HIGHEST_ID)
    assert await claim(store, behind) == [task_id(3)]


async def test_a_mark_counts_for_the_first_priority_of_its_range_only(store: Store) -> None:
    await insert(
        store,
        pending(1, priority=4, run_at_ms=NOW),
        pending(2, priority=5, run_at_ms=NOW),
        pending(3, priority=5, run_at_ms=NOW + 5),
        pending(4, priority=6, run_at_ms=NOW - 5),
    )
    marked = demand(priority_min=5, mark_run_at_ms=NOW + 1)
    assert await claim(store, marked) == [task_id(3), task_id(4)]


async def test_a_range_of_priorities_has_both_ends(store: Store) -> None:
    await insert(store, *(pending(number, priority=number) for number in range(10)))
    found = await claim(store, demand(priority_min=3, priority_max=5))
    assert found == [task_id(3), task_id(4), task_id(5)]


async def test_what_was_handed_out_is_not_claimed_again(store: Store) -> None:
    await insert(store, pending(1), pending(2))
    (first,) = await store.transaction(lambda tx: task_table.claim_tasks(tx, [demand(amount=1)]))
    await store.transaction(lambda tx: task_table.update_tasks(tx, [dispatched_from(first)]))
    assert await claim(store, demand()) == [task_id(2)]
    (stored,) = await live(store, 1)
    assert stored.attempt == 1
