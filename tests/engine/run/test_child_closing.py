"""Children whose run has ended are closed by their policies, some at a time."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.journal.entry import EntryKind
from tenure.core.limits import CLOSED_CHILDREN_MAX
from tenure.core.run.record import ClosePolicy
from tenure.core.task.record import Reason, TaskState
from tenure.engine.engine import Engine
from tenure.engine.run.child_command import CloseChildren
from tenure.engine.services.child_closing import ChildClosing
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import FinishKind, TerminateTask
from tenure.errors import Unavailable
from tenure.store.failure import Lost
from tests.engine.run.children import (
    cancel_children,
    claim_children,
    ends,
    items,
    new_child,
    new_run,
    parent_of,
    resizer,
    spawn,
    spawn_children,
    spawn_report,
    states,
)
from tests.engine.run.runs import AGAIN_SPEC, kinds, running_run, terminate
from tests.engine.world import NAMESPACE, World
from tests.polling import eventually

POLICIES = (ClosePolicy.CANCEL, ClosePolicy.TERMINATE, ClosePolicy.ABANDON)


async def close(world: World, engine: Engine) -> int:
    """Run rounds until nothing is left to be closed; return how many children were."""
    count = 0
    while True:
        report = await world.round(ChildClosing(), engine)
        count += report.count
        if not report.has_more:
            return count


async def closings(world: World) -> list[Any]:
    return (await world.dump("closings"))["closings"]


@pytest.mark.parametrize("kind", [FinishKind.SUCCEEDED, FinishKind.FAILED])
async def test_each_child_is_closed_by_its_policy(
    world: World, engine: Engine, kind: FinishKind
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    new = [new_child(world, each.value, close_policy=each) for each in POLICIES * 2]
    ids = await spawn_children(engine, worker, run, *new)
    await claim_children(world, engine, other, max_tasks=3)
    await world.finish(engine, worker, run, kind)
    assert len(await closings(world)) == 1
    assert await close(world, engine) == 4
    assert [await world.state(each) for each in ids] == [
        TaskState.CANCELLING,
        TaskState.FAILED,
        TaskState.RUNNING,
        TaskState.CANCELLED,
        TaskState.FAILED,
        TaskState.PENDING,
    ]
    assert (await world.task(ids[1])).progress.reason is Reason.TERMINATED
    assert await closings(world) == []


async def test_a_run_without_live_children_leaves_nothing_to_do(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await parent_of(world, engine, worker)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task)
    await world.finish(engine, worker, run)
    assert await closings(world) == []
    assert await close(world, engine) == 0


async def test_what_ended_here_wakes_the_service_at_once(world: World) -> None:
    engine = await world.start(services=[ChildClosing()])
    worker = await world.worker(engine)
    run, (child_id,) = await parent_of(world, engine, worker)
    await terminate(engine, run.id)

    async def is_closed() -> bool:
        return await world.state(child_id) is TaskState.CANCELLED

    await eventually(is_closed)


async def test_runs_below_a_closed_run_close_their_own_children(
    world: World, engine: Engine
) -> None:
    worker, shipper = await world.worker(engine), await world.worker(engine, "ship")
    run = await running_run(world, engine, worker)
    asked = new_run(world, "a")
    killed = new_run(world, "b", close_policy=ClosePolicy.TERMINATE)
    await spawn_children(engine, worker, run, asked, killed)
    below = {each.id: each for each in await claim_children(world, engine, shipper, "ship")}
    leaves = {
        run_id: (await spawn_children(engine, shipper, child, new_child(world)))[0]
        for run_id, child in below.items()
    }
    await terminate(engine, run.id)
    await close(world, engine)
    assert await world.state(killed.new.id) is TaskState.FAILED
    assert await world.state(leaves[killed.new.id]) is TaskState.CANCELLED
    # The other one may clean up first.
    assert await world.state(asked.new.id) is TaskState.CANCELLING
    assert await kinds(engine, asked.new.id) == [EntryKind.CANCEL]
    assert await world.state(leaves[asked.new.id]) is TaskState.PENDING
    await world.finish(engine, shipper, below[asked.new.id], FinishKind.CANCELLED)
    await close(world, engine)
    assert await world.state(leaves[asked.new.id]) is TaskState.CANCELLED


async def test_a_run_that_begins_anew_closes_what_it_had_and_nothing_else(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, spec=AGAIN_SPEC)
    (old,) = await spawn_children(engine, worker, run, new_child(world))
    report = spawn_report(run, *items(world, 0, 2), group_key="map:x", group_total=2)
    assert await spawn(engine, worker, report) == (None,)
    await world.finish(engine, worker, run, FinishKind.FAILED)
    assert len(await closings(world)) == 2
    await world.advance(2_000)
    await world.round(DueTasks(), engine)
    (again,) = await world.claim(engine, worker)
    (young,) = await spawn_children(engine, worker, again, new_child(world))
    assert await close(world, engine) == 3
    assert await world.state(old) is TaskState.CANCELLED
    assert await world.state(young) is TaskState.PENDING
    assert await closings(world) == []
    assert await ends(engine, run.id) == []


async def test_items_of_groups_are_cancelled(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    new = items(world, 0, 3)
    report = spawn_report(run, *new, group_key="map:x", group_total=5)
    assert await spawn(engine, worker, report) == (None,)
    await world.finish(engine, worker, run)
    assert await close(world, engine) == 3
    assert {await world.state(each.new.id) for each in new} == {TaskState.CANCELLED}


async def test_three_thousand_children_are_closed_although_servers_die(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    for part in range(3):
        new = [
            new_child(world, f"{part}#{number}", close_policy=POLICIES[number % 3])
            for number in range(1_000)
        ]
        await spawn_children(engine, worker, run, *new)
    await world.finish(engine, worker, run)
    assert (await world.round(ChildClosing(), engine)).has_more
    for point in ("before COMMIT", "after COMMIT"):
        other = await world.start()
        world.faults.raise_at(point, Lost("gone"))
        with pytest.raises(Unavailable):
            await other.submit(CloseChildren(amount=CLOSED_CHILDREN_MAX))
        await world.kill(other)
    await close(world, engine)
    rows = await world.database.rows("SELECT state, count(*) AS n FROM tasks GROUP BY state")
    assert {row["state"]: row["n"] for row in rows} == {"pending": 999}
    rows = await world.database.rows("SELECT state, count(*) AS n FROM history GROUP BY state")
    assert {row["state"]: row["n"] for row in rows} == {
        "cancelled": 1_002,
        "failed": 999,
        "succeeded": 1,
    }
    assert await closings(world) == []


async def test_two_servers_close_the_children_of_different_runs(
    world: World, engine: Engine
) -> None:
    worker, elsewhere = await world.worker(engine), await world.start()
    for _ in range(2):
        run, _ = await parent_of(world, engine, worker, 3)
        await terminate(engine, run.id)
    first = engine.submit(CloseChildren(amount=10))
    second = elsewhere.submit(CloseChildren(amount=10))
    await first
    await second
    assert await close(world, engine) + (await first).count + (await second).count >= 6
    assert await closings(world) == []


async def test_a_run_ends_children_of_its_own(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, ids = await parent_of(world, engine, worker, 3)
    (foreign,) = await world.add(engine)
    first, _ = await claim_children(world, engine, other, max_tasks=2)
    await world.finish(engine, other, first)
    asked = (*ids, foreign, world.clock.new_id())
    assert await cancel_children(engine, worker, run, *asked, reason="late") is None
    assert [await world.state(each) for each in ids] == [
        TaskState.SUCCEEDED,
        TaskState.CANCELLING,
        TaskState.CANCELLED,
    ]
    assert await world.state(foreign) is TaskState.PENDING
    assert await states(engine, run.id) == ["succeeded", "cancelled"]
    assert (await ends(engine, run.id))[1].content.error.message == "late"  # type: ignore[union-attr]
    assert await cancel_children(engine, worker, run, *asked) is None
    assert len(await ends(engine, run.id)) == 2


async def test_nobody_else_ends_children_of_a_run(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await world.worker(engine)
    run, (child_id,) = await parent_of(world, engine, worker)
    refusal = await cancel_children(engine, other, run, child_id)
    assert refusal is not None
    assert refusal.code == "attempt_mismatch"
    assert await world.state(child_id) is TaskState.PENDING


async def test_a_cancelled_child_run_is_told_by_its_journal(world: World, engine: Engine) -> None:
    worker, shipper = await world.worker(engine), await world.worker(engine, "ship")
    run = await running_run(world, engine, worker)
    (child_id,) = await spawn_children(engine, worker, run, new_run(world))
    await claim_children(world, engine, shipper, "ship")
    assert await cancel_children(engine, worker, run, child_id, reason="late") is None
    assert await kinds(engine, child_id) == [EntryKind.CANCEL]


async def test_a_child_that_does_not_know_its_call_any_more_is_heard_by_nobody_and_closed(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run, ids = await parent_of(world, engine, worker, 2)
    await world.database.execute("UPDATE tasks SET origin = NULL WHERE parent_id IS NOT NULL")
    await engine.submit(TerminateTask(namespace=NAMESPACE, task_id=ids[0]))
    assert await ends(engine, run.id) == []
    await world.finish(engine, worker, run)
    assert await close(world, engine) == 1
    assert await world.state(ids[1]) is TaskState.CANCELLED
