"""Groups and their results are forgotten with the journal that they belong to."""

from __future__ import annotations

from tenure.engine.engine import Engine
from tenure.engine.services.retention import Retention
from tenure.engine.task.command import FinishKind, FinishTasks
from tests.engine.run.children import claim_children, items, resizer, spawn, spawn_report
from tests.engine.run.runs import AGAIN_SPEC, running_run
from tests.engine.world import DAY_MS, NAMESPACE, World, finish


async def grouped(world: World, engine: Engine, *, has_ended: bool, fails: bool = False) -> str:
    """Return the id of a run with a group, all items of which have ended."""
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker, spec=AGAIN_SPEC)
    report = spawn_report(run, *items(world, 0, 3), group_key="map:x", group_total=3)
    assert await spawn(engine, worker, report) == (None,)
    done = tuple([finish(task) for task in await claim_children(world, engine, other)])
    await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=other, items=done))
    if fails:
        await world.finish(engine, worker, run, FinishKind.FAILED)
    elif has_ended:
        await world.finish(engine, worker, run)
    return run.id


async def forget(engine: Engine) -> None:
    for _ in range(3):
        await Retention().run_once(engine)


async def counts(world: World) -> tuple[int, int]:
    """Return how many groups there are, and how many results of items."""
    results = await world.database.rows("SELECT pos FROM journal WHERE kind = 2")
    return len((await world.dump("groups"))["groups"]), len(results)


async def test_a_group_goes_with_its_run(world: World, engine: Engine) -> None:
    await grouped(world, engine, has_ended=True)
    await world.advance(4 * DAY_MS)
    await forget(engine)
    assert await counts(world) == (1, 3)
    await world.advance(5 * DAY_MS)
    await forget(engine)
    assert await counts(world) == (0, 0)


async def test_a_group_of_a_live_run_stays(world: World, engine: Engine) -> None:
    await grouped(world, engine, has_ended=False)
    await world.advance(20 * DAY_MS)
    await forget(engine)
    assert await counts(world) == (1, 3)


async def test_a_group_of_an_earlier_generation_goes_although_its_run_lives(
    world: World, engine: Engine
) -> None:
    await grouped(world, engine, has_ended=False, fails=True)
    await world.advance(9 * DAY_MS)
    await forget(engine)
    # Its results go with the day on which they were begun, when no other journal of it is needed.
    assert (await counts(world))[0] == 0
