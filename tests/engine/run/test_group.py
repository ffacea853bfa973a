"""Groups: many items, one entry; results in a journal of their own, counted exactly."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.group.record import Group
from tenure.core.journal.entry import Entry, EntryKind
from tenure.core.run.child import place_of
from tenure.core.task.record import Task, TaskState
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.services.child_closing import ChildClosing
from tenure.engine.task.command import CancelTask, FinishKind, FinishTasks, TerminateTask
from tenure.engine.worker.command import ReportHeld
from tenure.store.table import group as group_table
from tests.engine.run.children import (
    cancel_children,
    claim_children,
    ends,
    items,
    resizer,
    spawn,
    spawn_refusal,
    spawn_report,
)
from tests.engine.run.runs import give_up_slot, kinds, running_run
from tests.engine.world import FATAL, NAMESPACE, World, finish

MAP = "map:resize"


def group_report(run: Task, *children: Any, total: int, **changes: Any) -> Any:
    fields = {"group_key": MAP, "group_index": 3, "group_total": total, **changes}
    return spawn_report(run, *children, **fields)


async def mapped(
    world: World, engine: Engine, worker: str, count: int, **changes: Any
) -> tuple[Task, list[str]]:
    """Return a run that a worker holds, and the ids of the items of its group."""
    run = await running_run(world, engine, worker)
    new = items(world, 0, count)
    assert await spawn(engine, worker, group_report(run, *new, total=count, **changes)) == (None,)
    return run, [each.new.id for each in new]


async def groups(engine: Engine, run_id: str) -> list[Group]:
    return await engine.store.read(
        lambda tx: group_table.read_groups(tx, (NAMESPACE, run_id), amount=10)
    )


async def results(engine: Engine, run_id: str, after: int = 0) -> list[Entry]:
    (group,) = await groups(engine, run_id)
    page = await engine.store.read(lambda tx: group_table.read_results(tx, group, after=after))
    return list(page.entries)


async def end_all(engine: Engine, worker: str, tasks: list[Task]) -> None:
    done = tuple(finish(task, output=b"1") for task in tasks)
    await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=worker, items=done))


async def test_a_run_hears_of_its_group_once_all_items_have_ended(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, ids = await mapped(world, engine, worker, 3)
    await give_up_slot(world, engine, worker, run, patience_n=100)
    tasks = await claim_children(world, engine, other)
    await end_all(engine, other, tasks[1:])
    assert await world.state(run.id) is TaskState.WAITING
    (group,) = await groups(engine, run.id)
    assert (group.spawned, group.open_count, group.has_ended) == (3, 1, False)
    await world.finish(engine, other, tasks[0], FinishKind.FAILED, error=FATAL)
    assert await world.state(run.id) is TaskState.PENDING
    (entry,) = await ends(engine, run.id)
    content = entry.content
    assert (entry.kind, entry.key, content.index) == (EntryKind.GROUP, MAP, 3)
    assert (content.total, content.succeeded, content.failed, content.cancelled) == (3, 2, 1, 0)
    assert (content.group_id, content.error) == (group.group_id, None)
    found = await results(engine, run.id)
    assert [(each.pos, each.key, each.content.task_id) for each in found] == [
        (item + 1, str(item), ids[item]) for item in range(3)
    ]
    assert [each.content.state for each in found] == ["failed", "succeeded", "succeeded"]


async def test_an_item_has_its_group_as_parent_and_a_key_of_its_own(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run, ids = await mapped(world, engine, worker, 2)
    (group,) = await groups(engine, run.id)
    task = await world.task(ids[1])
    assert task.link is not None
    assert task.link.parent_id == group.group_id
    place = place_of(task)
    assert (place.run_id, place.group_id, place.item) == (run.id, group.group_id, 1)
    assert place.step_key == f"{run.id}:0:{MAP}:1"


async def test_items_come_in_their_order_and_a_repeat_makes_nothing_new(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    new = items(world, 0, 5)
    first = group_report(run, *new[:2], total=5)
    assert await spawn(engine, worker, first) == (None,)
    gap = await spawn_refusal(engine, worker, group_report(run, new[3], total=5))
    assert (gap.code, gap.fields) == ("out_of_order", {"expected_no": 2})
    swapped = group_report(run, new[3], new[2], total=5)
    assert (await spawn_refusal(engine, worker, swapped)).code == "invalid_argument"
    beyond = group_report(run, replace(new[4], item=5), total=5)
    assert (await spawn_refusal(engine, worker, beyond)).code == "invalid_argument"
    other_total = group_report(run, *new[2:], total=6)
    assert (await spawn_refusal(engine, worker, other_total)).code == "already_exists"
    await end_all(engine, other, await claim_children(world, engine, other))
    assert await ends(engine, run.id) == []
    # All from the start, as after a lost session: what is stored is passed over.
    assert await spawn(engine, worker, group_report(run, *new, total=5)) == (None,)
    assert await spawn(engine, worker, first) == (None,)
    (group,) = await groups(engine, run.id)
    assert (group.spawned, group.open_count) == (5, 3)
    await end_all(engine, other, await claim_children(world, engine, other))
    assert await kinds(engine, run.id) == [EntryKind.GROUP]


async def test_an_item_whose_id_is_taken_refuses_its_report(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    (foreign,) = await world.add(engine)
    (item,) = items(world, 0, 1)
    item = replace(item, new=replace(item.new, id=foreign))
    refusal = await spawn_refusal(engine, worker, group_report(run, item, total=1))
    assert refusal.code == "already_exists"
    assert await groups(engine, run.id) == []


async def test_a_group_of_nothing_has_ended_at_once(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    for _ in range(2):
        assert await spawn(engine, worker, group_report(run, total=0)) == (None,)
    (entry,) = await ends(engine, run.id)
    assert (entry.kind, entry.content.total) == (EntryKind.GROUP, 0)


async def test_a_group_that_fails_fast_ends_with_its_first_failure_and_closes_the_rest(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, ids = await mapped(world, engine, worker, 4, fails_fast=True)
    tasks = await claim_children(world, engine, other, max_tasks=3)
    await end_all(engine, other, tasks[:1])
    await world.finish(engine, other, tasks[1], FinishKind.FAILED, error=FATAL)
    (entry,) = await ends(engine, run.id)
    content = entry.content
    assert (content.succeeded, content.failed, content.error) == (1, 1, FATAL)
    await world.round(ChildClosing(), engine)
    # One was waiting and one is asked to stop; neither is heard of again.
    assert [await world.state(each) for each in ids] == [
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.CANCELLING,
        TaskState.CANCELLED,
    ]
    await world.finish(engine, other, tasks[2], FinishKind.CANCELLED)
    assert await kinds(engine, run.id) == [EntryKind.GROUP]
    assert len(await results(engine, run.id)) == 4
    (group,) = await groups(engine, run.id)
    assert (group.open_count, group.failed_count, group.cancelled_count) == (0, 1, 2)
    assert (await world.dump("closings"))["closings"] == []


async def test_a_group_that_has_ended_takes_no_more_items(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    new = items(world, 0, 3)
    report = group_report(run, *new[:1], total=3, fails_fast=True)
    assert await spawn(engine, worker, report) == (None,)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task, FinishKind.FAILED, error=FATAL)
    rest = group_report(run, *new[1:], total=3, fails_fast=True)
    assert await spawn(engine, worker, rest) == (None,)
    (group,) = await groups(engine, run.id)
    assert (group.spawned, group.has_ended) == (1, True)


async def test_all_reports_of_a_group_that_has_ended_are_done(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    new = items(world, 0, 3)
    report = group_report(run, *new[:1], total=3, fails_fast=True)
    assert await spawn(engine, worker, report) == (None,)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task, FinishKind.FAILED, error=FATAL)
    for one in new[1:]:
        # Whoever has not heard of the end goes on: nothing of it was stored.
        rest = group_report(run, one, total=3, fails_fast=True)
        assert await spawn(engine, worker, rest) == (None,)
    (group,) = await groups(engine, run.id)
    assert (group.spawned, group.has_ended) == (1, True)


async def test_a_cancelled_item_counts_as_that(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run, ids = await mapped(world, engine, worker, 1)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=ids[0]))
    (entry,) = await ends(engine, run.id)
    assert (entry.content.cancelled, entry.content.failed) == (1, 0)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_cancelled_group_ends_when_its_open_items_have(
    world: World, engine: Engine, *, is_whole: bool
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, ids = await mapped(world, engine, worker, 3, **({} if is_whole else {"group_total": 9}))
    (task,) = await claim_children(world, engine, other, max_tasks=1)
    assert await cancel_children(engine, worker, run, group_key=MAP, reason="late") is None
    await world.round(ChildClosing(), engine)
    assert await ends(engine, run.id) == []
    await world.finish(engine, other, task, FinishKind.CANCELLED)
    (entry,) = await ends(engine, run.id)
    assert entry.content.cancelled == 3
    assert {await world.state(each) for each in ids} == {TaskState.CANCELLED}
    # Again, and of a group that never was: nothing is left to do.
    assert await cancel_children(engine, worker, run, group_key=MAP) is None
    assert await cancel_children(engine, worker, run, group_key="map:other") is None


async def test_a_group_without_open_items_ends_when_it_is_cancelled(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await mapped(world, engine, worker, 1, group_total=5)
    await end_all(engine, other, await claim_children(world, engine, other))
    assert await cancel_children(engine, worker, run, group_key=MAP) is None
    (entry,) = await ends(engine, run.id)
    assert (entry.content.total, entry.content.succeeded) == (5, 1)


async def test_items_of_a_run_that_has_ended_are_counted_and_not_heard(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await mapped(world, engine, worker, 2)
    tasks = await claim_children(world, engine, other)
    await world.finish(engine, worker, run)
    await end_all(engine, other, tasks)
    assert await kinds(engine, run.id) == []
    (group,) = await groups(engine, run.id)
    assert (group.open_count, group.has_ended) == (0, False)


async def test_items_end_at_two_servers_and_are_counted_once_each(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    elsewhere = await world.start()
    run, _ = await mapped(world, engine, worker, 20)
    tasks = await claim_children(world, engine, other)
    for number, task in enumerate(tasks):
        await world.finish(engine if number % 2 else elsewhere, other, task)
    (entry,) = await ends(engine, run.id)
    assert entry.content.succeeded == 20
    assert len(await results(engine, run.id)) == 20


async def test_a_thousand_items_cost_a_few_statements_and_one_entry(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine, slots=1_000)
    run, _ = await mapped(world, engine, worker, 1_000)
    await give_up_slot(world, engine, worker, run)
    tasks = await claim_children(world, engine, other, max_tasks=1_000)
    while more := await claim_children(world, engine, other, max_tasks=1_000):
        tasks += more
    assert len(tasks) == 1_000
    world.faults.points.clear()
    await end_all(engine, other, tasks)
    assert world.faults.points.count("update_groups") == 1
    assert world.faults.points.count("append_entries") == 2
    assert await kinds(engine, run.id) == [EntryKind.GROUP]
    assert len(await results(engine, run.id)) == 1_000


async def test_results_come_in_pages(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await mapped(world, engine, worker, 4)
    large = b"x" * 200_000
    tasks = await claim_children(world, engine, other)
    done = tuple(finish(task, output=large) for task in tasks if task is not tasks[1])
    await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=other, items=done))
    found = await results(engine, run.id)
    assert [each.pos for each in found] == [1]
    assert [each.pos for each in await results(engine, run.id, after=1)] == [3]
    assert [each.pos for each in await results(engine, run.id, after=3)] == [4]


async def test_an_item_that_ended_at_another_server_is_counted_once_by_an_old_copy(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run, (item_id,) = await mapped(world, engine, worker, 1)
    await give_up_slot(world, engine, worker, run)
    other = await resizer(world, engine)
    (item,) = await claim_children(world, engine, other)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=item_id))
    # From here on this server has an old copy of the row.
    elsewhere = await world.start()
    await elsewhere.submit(TerminateTask(namespace=NAMESPACE, task_id=item_id))
    gone = (TaskRef(item.id, item.attempt),)
    await engine.submit(ReportHeld(namespace=NAMESPACE, worker_id=other, unbound=gone))
    (group,) = await groups(engine, run.id)
    assert (group.open_count, group.failed_count, group.cancelled_count) == (0, 1, 0)
    assert len(await ends(engine, run.id)) == 1
