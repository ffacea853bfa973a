"""Children and their runs in batches: woken and dealt at once, and never in each other's way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tenure.core.journal.entry import EntryKind
from tenure.core.run.record import Yield
from tenure.core.task.record import Task, TaskState
from tenure.engine.claim import waiting_runs
from tenure.engine.engine import Engine
from tenure.engine.run.child_command import SpawnTasks
from tenure.engine.run.command import RecordSteps
from tenure.engine.task.command import FinishKind, FinishTasks
from tests.engine.run.children import (
    claim_children,
    items,
    new_child,
    parent_of,
    resizer,
    spawn,
    spawn_children,
    spawn_report,
)
from tests.engine.run.runs import give_up_slot, kinds, report, running_run, step
from tests.engine.world import NAMESPACE, World, finish


async def waiting_parent(world: World, engine: Engine, worker: str) -> Task:
    """Return a run with a child, which waits."""
    run, _ = await parent_of(world, engine, worker)
    await give_up_slot(world, engine, worker, run)
    return await world.task(run.id)


async def test_a_run_that_its_child_wakes_is_handed_out_by_the_same_write(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    row = await waiting_parent(world, engine, worker)
    sink, _ = await world.session(engine, worker)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task)
    (again,) = sink.take()
    after = await world.task(row.id)
    assert (after.state, after.attempt, after.version) == (TaskState.DISPATCHED, 2, row.version + 1)
    assert again.link is not None
    assert again.link.page is not None
    assert [each.kind for each in again.link.page.entries] == [EntryKind.CHILD]


async def test_what_is_remembered_of_children_is_bounded(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_runs, "WAITING_RUNS_MAX", 1)
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker, 3)
    await give_up_slot(world, engine, worker, run)
    sink, _ = await world.session(engine, worker)
    first, *_ = await claim_children(world, engine, other)
    await world.finish(engine, other, first)
    await world.settle(engine)
    assert [task.id for task in sink.take()] == [run.id]


async def test_a_run_that_begins_from_the_start_comes_with_what_is_open(
    world: World, engine: Engine
) -> None:
    worker, other, cold = (
        await world.worker(engine),
        await resizer(world, engine),
        await world.worker(engine),
    )
    run = await running_run(world, engine, worker)
    ids = await spawn_children(
        engine, worker, run, new_child(world, "a", index=1), new_child(world, "b", index=2)
    )
    group = spawn_report(run, *items(world, 0, 2), group_key="map:x", group_total=5)
    assert await spawn(engine, worker, group) == (None,)
    (task,) = await claim_children(world, engine, other, max_tasks=1)
    assert task.id == ids[0]
    await world.finish(engine, other, task)
    await world.finish(engine, worker, run, FinishKind.RELEASED)
    (again,) = await world.claim(engine, cold)
    assert again.link is not None
    page = again.link.page
    assert page is not None
    assert [each.key for each in page.entries] == ["a"]
    (child,) = page.open
    assert (child.task_id, child.key, child.index, child.type, child.is_run) == (
        ids[1],
        "b",
        2,
        "resize",
        False,
    )
    (shown,) = page.groups
    assert (shown.key, shown.total, shown.spawned, shown.open_count) == ("map:x", 5, 2, 2)
    assert page.open_next == ""


async def test_open_children_come_in_pages(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.engine.run.hand_out_page.OPEN_PAGE_MAX", 2)
    worker = await world.worker(engine)
    run, ids = await parent_of(world, engine, worker, 3)
    await world.finish(engine, worker, run, FinishKind.RELEASED)
    (again,) = await world.claim(engine, worker)
    assert again.link is not None
    page = again.link.page
    assert page is not None
    assert ([each.task_id for each in page.open], page.open_next) == (ids[:2], ids[1])


async def test_a_home_that_goes_on_gets_what_is_new_and_nothing_else(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker, 2)
    command = RecordSteps(namespace=NAMESPACE, worker_id=worker, items=(report(run),))
    await engine.submit(command)
    await give_up_slot(world, engine, worker, run, seen=1)
    (task,) = await claim_children(world, engine, other, max_tasks=1)
    await world.finish(engine, other, task)
    (again,) = await world.claim(engine, worker)
    assert again.link is not None
    page = again.link.page
    assert page is not None
    assert (page.after, [each.pos for each in page.entries], page.open) == (1, [2], ())


async def test_what_a_batch_makes_and_ends_is_open_or_not_as_it_decides(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker)
    (task,) = await claim_children(world, engine, other)
    cold = await world.worker(engine)
    sink, _ = await world.session(engine, cold)
    made = new_child(world, "young")
    done = FinishTasks(namespace=NAMESPACE, worker_id=other, items=(finish(task),))
    gone = FinishTasks(
        namespace=NAMESPACE, worker_id=worker, items=(finish(run, FinishKind.RELEASED),)
    )
    more = SpawnTasks(namespace=NAMESPACE, worker_id=worker, items=(spawn_report(run, made),))
    futures: list[Any] = [engine.submit(each) for each in (more, done, gone)]
    for future in futures:
        await future
    await world.settle(engine)
    (again,) = sink.take()
    assert again.link is not None
    page = again.link.page
    assert page is not None
    assert [each.key for each in page.open] == ["young"]
    assert [each.kind for each in page.entries] == [EntryKind.CHILD]


@pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
async def test_two_servers_end_each_others_children_without_a_deadlock(
    world: World, engine: Engine
) -> None:
    """Each server holds three runs and executes the children of the other's."""
    elsewhere = await world.start()
    families = []
    for here, there in ((engine, elsewhere), (elsewhere, engine)):
        for _ in range(3):
            worker = await world.worker(here)
            other = await resizer(world, there)
            run, _ = await parent_of(world, here, worker, 10)
            tasks = await claim_children(world, there, other, max_tasks=10)
            families.append((here, there, worker, other, run, tasks))
    with capture_logs() as logs:
        for number in range(10):
            commands: list[Any] = []
            for here, there, worker, other, run, tasks in families:
                done = FinishTasks(
                    namespace=NAMESPACE, worker_id=other, items=(finish(tasks[number]),)
                )
                entry = report(run, step(f"s{number}"), first_no=number + 1)
                steps = RecordSteps(namespace=NAMESPACE, worker_id=worker, items=(entry,))
                commands += [there.submit(done), here.submit(steps)]
            await asyncio.gather(*commands)
    for *_, run, _ in families:
        assert sorted(await kinds(engine, run.id)) == [EntryKind.STEP] * 10 + [EntryKind.CHILD] * 10
    assert not [each for each in logs if "deadlock" in str(each)]


async def test_a_run_yields_with_all_that_its_children_came_to(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker, 2)
    tasks = await claim_children(world, engine, other)
    for task in tasks:
        await world.finish(engine, other, task)
    wish = Yield(seen=2)
    await world.finish(engine, worker, run, FinishKind.YIELDED, wish=wish)
    assert await world.state(run.id) is TaskState.WAITING
