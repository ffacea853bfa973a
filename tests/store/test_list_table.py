"""The list of tasks over both tables, newest first, page by page."""

from __future__ import annotations

import random

import pytest

from tenure.core.task_record import Task, TaskState
from tenure.store import table
from tenure.store.transaction import Store
from tests.store.rows import (
    HIGHEST_ID,
    NAMESPACE,
    finished_from,
    held,
    insert,
    pending,
    task_id,
)


async def page(
    store: Store,
    before_id: str = HIGHEST_ID,
    amount: int = 100,
    **filters: str,
) -> list[Task]:
    chosen = {"queue": "", "type_": "", "state": "", **filters}
    return await store.read(
        lambda tx: table.list_tasks(
            tx,
            namespace=NAMESPACE,
            before_id=before_id,
            amount=amount,
            **chosen,
        ),
    )


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

    async def ids(queue: str = "", type_: str = "", state: str = "") -> list[str]:
        return [task.id for task in await page(store, queue=queue, type_=type_, state=state)]

    assert await ids(queue="other") == [task_id(2)]
    assert await ids(type_="sms") == [task_id(3)]
    assert await ids(state="pending") == [task_id(4)]
    assert await ids(state="succeeded") == [task_id(6)]
    assert await ids(state="running", type_="mail", queue="default") == [task_id(1)]
    assert await ids(state="failed") == []


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
