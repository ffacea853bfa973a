"""Explaining runs with what they wait for, from what is in the store, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.explain.fact import TaskExplanation, WaitingReason
from tenure.core.limits import EXPLAINED_CHILDREN_MAX, EXPLAINED_DEPTH_MAX
from tenure.core.run.record import Wait
from tenure.core.task.record import Task
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.engine.engine import Engine
from tenure.engine.read.explanation import explain_run, explain_task
from tenure.engine.task.command import FinishKind
from tenure.errors import InvalidArgument, NotFound
from tests.engine.run.children import items, new_child, new_run, resizer, spawn_children
from tests.engine.run.runs import give_up_slot, running_run, start
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World


async def explained(engine: Engine, run_id: str) -> TaskExplanation:
    return await explain_run(engine.store, namespace=NAMESPACE, run_id=run_id)


async def first(engine: Engine, run_id: str) -> WaitingReason:
    return (await explained(engine, run_id)).reasons[0]


async def rests(world: World, engine: Engine, worker: str, run: Task, *waits: Wait) -> None:
    await give_up_slot(world, engine, worker, run, waits=waits, wait_count=len(waits))


async def waiting(world: World, engine: Engine, count: int = 1) -> tuple[Task, list[str]]:
    """Return a run that waits for children that no worker offers."""
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    children = [new_child(world, f"resize#{number}") for number in range(count)]
    ids = await spawn_children(engine, worker, run, *children)
    told = [Wait("child", f"resize#{number}", 1, id_) for number, id_ in enumerate(ids[:20])]
    await rests(world, engine, worker, run, *told)
    return run, ids


async def test_a_run_waits_for_a_child_that_no_worker_offers(world: World, engine: Engine) -> None:
    run, (child_id,) = await waiting(world, engine)
    found = await explained(engine, run.id)
    assert (found.task.id, found.status) == (run.id, "waiting")
    (reason,) = found.reasons
    (child,) = reason.tasks
    assert (child.task.id, child.status) == (child_id, "pending")
    assert child.reasons[0].code == "no_worker_for_type"
    # As it is explained for itself.
    alone = await explain_task(engine.store, namespace=NAMESPACE, task_id=child_id)
    assert alone.reasons == child.reasons
    # A task is explained in the same way.
    assert await explain_task(engine.store, namespace=NAMESPACE, task_id=run.id) == found


async def test_a_chain_of_runs_is_followed_down_to_its_cause(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = top = await running_run(world, engine, worker)
    for _ in range(3):
        ship = await world.worker(engine, "ship")
        (child_id,) = await spawn_children(engine, worker, run, new_run(world))
        await rests(world, engine, worker, run, Wait("child", "child:ship", 1, child_id))
        (run,) = await world.claim(engine, ship, types=frozenset({"ship"}))
        await world.confirm(engine, ship, run)
        worker = ship
    error = ErrorInfo(message="the journal has charge", category=ErrorCategory.CONFIGURATION)
    await world.finish(engine, worker, run, FinishKind.PARKED, error=error)
    reason = await first(engine, top.id)
    for _ in range(3):
        (child,) = reason.tasks
        reason = child.reasons[0]
    assert reason.code == "parked"
    assert "the journal has charge" in reason.message
    assert not reason.tasks


async def test_a_chain_is_followed_for_so_many_runs(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = top = await running_run(world, engine, worker)
    for _ in range(EXPLAINED_DEPTH_MAX + 1):
        new = {"type": "mail"}
        (child_id,) = await spawn_children(engine, worker, run, new_run(world, new=new))
        await rests(world, engine, worker, run, Wait("child", "child:ship", 1, child_id))
        (run,) = await world.claim(engine, worker)
        await world.confirm(engine, worker, run)
    await rests(world, engine, worker, run, Wait("signal", "go"))
    depth, reason = 0, await first(engine, top.id)
    while reason.tasks:
        depth, reason = depth + 1, reason.tasks[0].reasons[0]
    assert depth == EXPLAINED_DEPTH_MAX
    assert "tenure runs show" in reason.advice


async def test_only_the_first_children_are_explained(world: World, engine: Engine) -> None:
    run, ids = await waiting(world, engine, EXPLAINED_CHILDREN_MAX + 2)
    found = await explained(engine, run.id)
    assert len(found.reasons) == len(ids)
    explained_ids = [task.task.id for each in found.reasons for task in each.tasks]
    assert explained_ids == ids[:EXPLAINED_CHILDREN_MAX]


async def test_the_first_items_of_a_group_are_explained(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    report: dict[str, Any] = {"group_key": "map:resize", "group_total": 9}
    ids = await spawn_children(engine, worker, run, *items(world, 0, 9), **report)
    other = await resizer(world, engine)
    (done,) = await world.claim(engine, other, types=frozenset({"resize"}), max_tasks=1)
    await world.confirm(engine, other, done)
    await world.finish(engine, other, done)
    await rests(world, engine, worker, run, Wait("group", "map:resize", 1, "9 items"))
    reason = await first(engine, run.id)
    assert reason.message.endswith("8 of 9 items are open.")
    left = sorted(set(ids) - {done.id})
    assert [each.task.id for each in reason.tasks] == left[:EXPLAINED_CHILDREN_MAX]


async def test_a_run_that_has_not_told_is_explained_by_what_it_has_made(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    ids = await spawn_children(engine, worker, run, new_child(world), new_child(world, "b"))
    await rests(world, engine, worker, run)
    reason = await first(engine, run.id)
    assert sorted(each.task.id for each in reason.tasks) == sorted(ids)


@pytest.mark.parametrize("detail", ["", "no id", "0198f2c4-0000-7000-8000-0123456789ab"])
async def test_a_child_that_cannot_be_found_is_only_named(
    world: World, engine: Engine, detail: str
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await rests(world, engine, worker, run, Wait("child", "resize", 1, detail))
    reason = await first(engine, run.id)
    assert (reason.code, reason.tasks) == ("waiting", ())


async def test_a_task_of_somebody_else_is_not_taken_for_a_child(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    (stranger,) = await world.add(engine, type="resize")
    run = await running_run(world, engine, worker)
    await rests(world, engine, worker, run, Wait("child", "resize", 1, stranger))
    assert (await first(engine, run.id)).tasks == ()


async def test_a_child_that_has_ended_is_explained_too(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    (child_id,) = await spawn_children(engine, worker, run, new_child(world))
    other = await resizer(world, engine)
    (child,) = await world.claim(engine, other, types=frozenset({"resize"}))
    await world.confirm(engine, other, child)
    waits = (Wait("child", "resize", 1, child_id), Wait("signal", "go"))
    # It has patience, so it waits although the child has ended.
    await give_up_slot(
        world, engine, worker, run, waits=waits, wait_count=2, patience_n=5, patience_ms=60_000
    )
    await world.finish(engine, other, child)
    (ended,) = (await first(engine, run.id)).tasks
    assert (ended.status, ended.reasons[0].code) == ("succeeded", "finished")


async def test_a_run_is_named_by_its_own_id_too(world: World, engine: Engine) -> None:
    run_id = await start(world, engine, external_id="order-42")
    found = await explained(engine, "external:order-42")
    assert (found.task.id, found.reasons[0].code) == (run_id, "no_worker")


async def test_what_is_no_run_of_the_namespace_is_not_found(world: World, engine: Engine) -> None:
    (task_id,) = await world.add(engine)
    run_id = await start(world, engine)
    for namespace, wanted in ((NAMESPACE, task_id), (OTHER_NAMESPACE, run_id)):
        with pytest.raises(NotFound, match=f"Run {wanted} was not found."):
            await explain_run(engine.store, namespace=namespace, run_id=wanted)


@pytest.mark.parametrize("bad", [{"run_id": "no id"}, {"namespace": "a/b/c"}])
async def test_bad_input_is_refused(world: World, engine: Engine, bad: dict[str, str]) -> None:
    given = {"namespace": NAMESPACE, "run_id": await start(world, engine), **bad}
    with pytest.raises(InvalidArgument):
        await explain_run(engine.store, **given)
