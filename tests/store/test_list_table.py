"""The list of tasks over both tables, newest first, page by page."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tenure.core.filter import TaskFilter
from tenure.core.queue import Queue
from tenure.core.task_record import Line, Task, TaskState
from tenure.store import listing, table
from tenure.store.listing import Held, Slice
from tenure.store.transaction import Store
from tests.store.rows import (
    HIGHEST_ID,
    LOWEST_ID,
    NAMESPACE,
    NOW,
    QUEUE,
    add_workers,
    finished_from,
    held,
    insert,
    lease,
    offline,
    pending,
    server_id,
    task_id,
    worker,
    worker_id,
)


async def page(
    store: Store,
    before_id: str = HIGHEST_ID,
    amount: int = 100,
    **chosen: Any,
) -> list[Task]:
    part = Slice(before_id, amount)
    where = TaskFilter(**chosen)
    return await store.read(lambda tx: listing.list_tasks(tx, NAMESPACE, where, part))


async def finish(store: Store, *tasks: Task) -> None:
    done = [finished_from(task) for task in tasks]
    await store.transaction(lambda tx: table.finish_tasks(tx, done))


async def test_live_and_finished_tasks_come_in_one_order_newest_first(store: Store) -> None:
    tasks = [held(number) for number in range(1, 7)]
    await insert(store, *tasks)
    await finish(store, tasks[1], tasks[4])
    found = await page(store)
    assert [task.id for task in found] == [task_id(number) for number in range(6, 0, -1)]
    done = {task.id for task in found if task.state is TaskState.SUCCEEDED}
    assert done == {task_id(2), task_id(5)}
    assert all((task.finished_at_ms is None) == (task.id not in done) for task in found)


async def test_a_listed_task_has_all_its_fields(store: Store) -> None:
    task = held(1, labels={"a": "b"}, input=b"in", due_at_ms=5, is_guarded=True)
    await insert(store, task, held(2))
    await finish(store, held(2))
    finished, listed = await page(store)
    assert listed == task
    assert finished.output == b"done"


async def test_filters_leave_out_what_does_not_fit(store: Store) -> None:
    await insert(
        store,
        held(1),
        held(2, queue="other"),
        held(3, type="sms"),
        pending(4),
        held(5, namespace="x/y"),
        held(6),
    )
    await finish(store, held(6))

    async def ids(**chosen: Any) -> list[str]:
        found = [task.id for task in await page(store, **chosen)]
        where = TaskFilter(**chosen)
        count = await store.read(
            lambda tx: listing.count_tasks(tx, NAMESPACE, where, amount=100),
        )
        assert count == len(found)
        return found

    assert await ids(queue="other") == [task_id(2)]
    assert await ids(type="sms") == [task_id(3)]
    assert await ids(state=TaskState.PENDING) == [task_id(4)]
    assert await ids(state=TaskState.SUCCEEDED) == [task_id(6)]
    assert await ids(state=TaskState.RUNNING, type="mail", queue="default") == [task_id(1)]
    assert await ids(state=TaskState.FAILED) == []
    assert len(await ids()) == 5


async def test_a_page_begins_behind_the_last_one(store: Store) -> None:
    await insert(store, *(pending(number) for number in range(1, 6)))
    first = await page(store, amount=2)
    second = await page(store, before_id=first[-1].id, amount=2)
    third = await page(store, before_id=second[-1].id, amount=2)
    numbers = [[int(task.id[-4:], 16) for task in each] for each in (first, second, third)]
    assert numbers == [[5, 4], [3, 2], [1]]


@pytest.mark.parametrize("seed", range(5))
async def test_a_task_that_moves_between_two_pages_is_neither_doubled_nor_missed(
    store: Store,
    seed: int,
) -> None:
    random_ = random.Random(seed)
    tasks = {task_id(number): held(number) for number in range(1, 41)}
    await insert(store, *tasks.values())
    left = list(tasks.values())
    seen: list[str] = []
    before_id = HIGHEST_ID
    while found := await page(store, before_id=before_id, amount=random_.randint(1, 7)):
        seen += [task.id for task in found]
        before_id = found[-1].id
        moving = random_.sample(left, k=min(5, len(left)))
        await finish(store, *moving)
        left = [task for task in left if task not in moving]
    assert seen == sorted(tasks, reverse=True)


async def test_the_head_of_every_line_is_found_and_nothing_behind_it(store: Store) -> None:
    await insert(
        store,
        pending(1, run_at_ms=NOW + 5),
        pending(2, run_at_ms=NOW + 3),
        pending(3, run_at_ms=NOW + 1, priority=9),
        pending(4, run_at_ms=NOW + 2, line=Line.RETURNED),
        pending(5, run_at_ms=NOW + 9, type="sms"),
        pending(6, queue="slow"),
        pending(7, namespace="a/b"),
        pending(8, line=Line.NONE, run_at_ms=NOW - 1),
        held(9),
    )
    brakes = Queue(NAMESPACE, "slow", is_paused=True, concurrency_max=4)
    await store.transaction(lambda tx: table.save_queues(tx, [brakes]))
    heads = await store.read(lambda tx: listing.list_waiting(tx, amount=100))
    found = sorted(
        (each.namespace, each.queue, each.type, each.run_at_ms - NOW, each.is_paused)
        for each in heads
    )
    assert found == [
        ("a/b", "default", "mail", 0, False),
        (NAMESPACE, "default", "mail", 1, False),
        (NAMESPACE, "default", "mail", 2, False),
        (NAMESPACE, "default", "mail", 3, False),
        (NAMESPACE, "default", "sms", 9, False),
        (NAMESPACE, "slow", "mail", 0, True),
    ]
    assert [each.concurrency_max for each in heads if each.queue == "slow"] == [4]
    assert len(await store.read(lambda tx: listing.list_waiting(tx, amount=2))) == 2


async def test_the_lines_of_some_namespaces_are_found_behind_those_of_others(store: Store) -> None:
    others = [pending(number, namespace="a/b", type=f"mail-{number}") for number in range(1, 6)]
    await insert(
        store,
        *others,
        pending(11, run_at_ms=NOW + 5),
        pending(12, run_at_ms=NOW + 3),
        pending(13, run_at_ms=NOW + 1, priority=9),
        pending(14, queue="slow"),
        pending(15, namespace="c/d"),
        pending(16, line=Line.NONE, run_at_ms=NOW - 1),
        pending(17, namespace="e/f"),
    )
    brakes = Queue(NAMESPACE, "slow", is_paused=True, concurrency_max=4)
    await store.transaction(lambda tx: table.save_queues(tx, [brakes]))

    async def found(amount: int, *scope: str) -> list[tuple[str, str, int, bool]]:
        heads = await store.read(
            lambda tx: listing.list_waiting(tx, amount=amount, scope=scope),
        )
        return sorted(
            (each.namespace, each.queue, each.run_at_ms - NOW, each.is_paused) for each in heads
        )

    mine = [
        (NAMESPACE, "default", 1, False),
        (NAMESPACE, "default", 3, False),
        (NAMESPACE, "slow", 0, True),
    ]
    assert await found(3, NAMESPACE) == mine
    assert await found(4, NAMESPACE, "c/d", "x/y") == [*mine, ("c/d", "default", 0, False)]
    # None of them has to wait until another is gone through.
    assert {each[0] for each in await found(2, "a/b", "c/d")} == {"a/b", "c/d"}
    assert await found(10, "x/y") == []


async def test_a_total_counts_no_further_than_it_is_told(store: Store) -> None:
    tasks = [held(number) for number in range(1, 7)]
    await insert(store, *tasks)
    await finish(store, *tasks[:3])

    async def count(amount: int) -> int:
        return await store.read(
            lambda tx: listing.count_tasks(tx, NAMESPACE, TaskFilter(), amount=amount),
        )

    assert [await count(amount) for amount in (2, 5, 6, 7)] == [2, 5, 6, 6]


async def test_online_workers_come_in_the_order_of_their_ids(store: Store) -> None:
    workers = [worker(1), worker(2), worker(3, namespace="a/b"), offline(4), worker(5)]
    await add_workers(
        store,
        workers,
        [lease(1), lease(2, server_id=server_id(2)), lease(3, lease_ms=3_000), lease(5)],
    )

    async def ids(after_id: str, amount: int) -> list[str]:
        found = await store.read(
            lambda tx: listing.list_online(
                tx,
                server_id=server_id(1),
                after_id=after_id,
                amount=amount,
            ),
        )
        return [each.id for each in found]

    assert await ids(LOWEST_ID, 10) == [worker_id(number) for number in (1, 3, 5)]
    assert await ids(worker_id(1), 1) == [worker_id(3)]


async def test_what_workers_hold_is_counted_with_the_last_hand_out(store: Store) -> None:
    await insert(
        store,
        held(1),
        held(2, handed_at_ms=NOW + 7),
        held(3, by=worker_id(2)),
        held(4, queue="slow"),
        pending(5),
    )
    places = [(NAMESPACE, QUEUE, worker_id(number)) for number in (1, 2, 3)]
    assert await store.read(lambda tx: listing.count_worker_held(tx, places)) == {
        worker_id(1): Held(2, NOW + 7),
        worker_id(2): Held(1, NOW),
        worker_id(3): Held(0, 0),
    }
