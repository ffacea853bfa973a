"""The list of tasks over both tables, newest first, page by page."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tenure.core.filter import TaskFilter
from tenure.core.queue import Queue
from tenure.core.task.record import Line, Reason, Task, TaskState
from tenure.store.table import listing, task_list
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table.listing import HeldCount, Slice, Total
from tenure.store.transaction import Store, Tx
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
    store: Store, before_id: str = HIGHEST_ID, amount: int = 100, **chosen: Any
) -> list[Task]:
    part = Slice(before_id, amount)
    return (await look(store, TaskFilter(**chosen), part))[0]


async def look(store: Store, where: TaskFilter, part: Slice) -> tuple[list[Task], str | None]:
    """Return the tasks of a page, and where the look for them ended too early."""

    async def body(tx: Tx) -> tuple[list[Task], str | None]:
        found = await task_list.find_tasks(tx, NAMESPACE, where, part)
        return await task_list.load_tasks(tx, NAMESPACE, found.ids), found.end_id

    return await store.scan(body)


async def count_listed(store: Store, where: TaskFilter, amount: int) -> Total:
    return await store.scan(lambda tx: task_list.count_tasks(tx, NAMESPACE, where, amount=amount))


async def finish(store: Store, *tasks: Task) -> None:
    done = [finished_from(task) for task in tasks]
    await store.transaction(lambda tx: task_table.finish_tasks(tx, done))


async def test_live_and_finished_tasks_come_in_one_order_newest_first(store: Store) -> None:
    tasks = [held(number) for number in range(1, 7)]
    await insert(store, *tasks)
    await finish(store, tasks[1], tasks[4])
    found = await page(store)
    assert [task.id for task in found] == [task_id(number) for number in range(6, 0, -1)]
    done = {task.id for task in found if task.state is TaskState.SUCCEEDED}
    assert done == {task_id(2), task_id(5)}
    assert all((task.finished_at_ms is None) == (task.id not in done) for task in found)


async def test_a_listed_task_has_all_its_fields_but_its_payloads(store: Store) -> None:
    task = held(1, labels={"a": "b"}, input=b"in", due_at_ms=5, is_guarded=True)
    await insert(store, task, held(2))
    await finish(store, held(2))
    finished, listed = await page(store)
    assert listed == replace(task, input=None)
    assert finished == replace(finished_from(held(2)), input=None, output=None, version=1)


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
        assert await count_listed(store, where, 100) == Total(len(found), is_exact=True)
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
    store: Store, seed: int
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
    await store.transaction(lambda tx: queue_table.save_queues(tx, [brakes]))
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
    await store.transaction(lambda tx: queue_table.save_queues(tx, [brakes]))

    async def found(amount: int, *scope: str) -> list[tuple[str, str, int, bool]]:
        heads = await store.read(lambda tx: listing.list_waiting(tx, amount=amount, scope=scope))
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

    async def count(amount: int, **chosen: Any) -> tuple[int, bool]:
        total = await count_listed(store, TaskFilter(**chosen), amount)
        return total.count, total.is_exact

    # Each table is looked at so far.
    assert await count(2) == (4, False)
    assert await count(3) == (6, False)
    assert await count(4) == (6, True)
    assert await count(2, state=TaskState.SUCCEEDED, type="sms") == (0, False)
    assert await count(2, state=TaskState.FAILED) == (0, True)
    assert await count(4, state=TaskState.RUNNING) == (3, True)
    assert await count(3, state=TaskState.RUNNING) == (3, False)
    assert await count(4, queue=QUEUE, type="sms") == (0, True)
    assert await count(3, queue=QUEUE, state=TaskState.RUNNING) == (3, False)


STATES: Final = (
    pending,
    held,
    lambda number, **fields: pending(number, line=Line.NONE, **fields),
    lambda number, **fields: pending(number, state=TaskState.PAUSED, line=Line.NONE, **fields),
)


@pytest.mark.parametrize("seed", range(6))
async def test_short_looks_find_what_long_ones_find_also_while_tasks_move(
    store: Store, seed: int
) -> None:
    random_ = random.Random(seed)
    tasks = [
        random_.choice(STATES)(
            number,
            queue=random_.choice(["default", "default", "rare"]),
            type=random_.choice(["mail", "sms"]),
        )
        for number in range(1, 81)
    ]
    await insert(store, *tasks)
    gone = [each for each in tasks if each.worker_id is not None and random_.random() < 0.5]
    ends = [TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED]
    done = {each.id: finished_as(each, random_.choice(ends)) for each in gone}
    await store.transaction(lambda tx: task_table.finish_tasks(tx, list(done.values())))
    states = [None, *ends, TaskState.PENDING, TaskState.RUNNING, TaskState.PAUSED]
    for state in states:
        where = TaskFilter(
            state=state,
            queue=random_.choice(["", "rare", "none"]),
            type=random_.choice(["", "sms"]),
        )
        now = (done.get(each.id, each) for each in tasks)
        expected = sorted((each.id for each in now if passes(where, each)), reverse=True)
        assert await all_ids(store, where, random_) == expected, where
        total = await count_listed(store, where, 1_000)
        assert total == Total(len(expected), is_exact=True)
    # A filter that no move touches: a task that ends between two pages is neither lost nor doubled.
    moving = [each for each in tasks if each.worker_id is not None and each.id not in done]
    expected = sorted((each.id for each in tasks if each.type == "sms"), reverse=True)
    assert await all_ids(store, TaskFilter(type="sms"), random_, moving=moving) == expected


def passes(where: TaskFilter, task: Task) -> bool:
    return (
        where.state in {None, task.state}
        and where.queue in {"", task.queue}
        and where.type in {"", task.type}
    )


def finished_as(task: Task, state: TaskState) -> Task:
    done = finished_from(task)
    if state is TaskState.SUCCEEDED:
        return done
    reason = Reason.RETRIES_EXHAUSTED if state is TaskState.FAILED else None
    return replace(done, state=state, output=None, progress=replace(done.progress, reason=reason))


async def all_ids(
    store: Store, where: TaskFilter, random_: random.Random, *, moving: Sequence[Task] = ()
) -> list[str]:
    """Return the ids of all pages of any size and any reach."""
    ids: list[str] = []
    position = HIGHEST_ID
    left = list(moving)
    while True:
        part = Slice(position, random_.randint(1, 6), random_.randint(1, 9))
        found, end_id = await look(store, where, part)
        ids += [task.id for task in found]
        if len(found) == part.amount:
            position = found[-1].id
        elif end_id is not None:
            assert end_id < position
            position = end_id
        else:
            return ids
        random_.shuffle(left)
        await finish(store, *[left.pop() for _ in range(min(3, len(left)))])


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
                tx, server_id=server_id(1), after_id=after_id, amount=amount
            )
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
        worker_id(1): HeldCount(2, NOW + 7),
        worker_id(2): HeldCount(1, NOW),
        worker_id(3): HeldCount(0, 0),
    }
