"""Whether work can be accepted: no after a full disk, until something shows that there is space."""

from __future__ import annotations

import pytest

from tenure.engine.services.space_watch import SpaceWatch
from tenure.errors import Unavailable
from tenure.store.failure import Lost
from tests.engine.world import World


def full() -> Lost:
    return Lost("The disk is full.", reason="storage_full")


@pytest.mark.parametrize("reason", ["storage_full", "storage_error"])
async def test_a_full_store_is_a_problem_until_a_task_is_stored(world: World, reason: str) -> None:
    engine = await world.start()
    worker = await world.worker(engine)
    await world.add(engine)
    world.faults.raise_at("before COMMIT", Lost("No.", reason=reason))
    with pytest.raises(Unavailable):
        await world.add(engine)
    assert engine.acceptance.problem == reason
    # A row here and there still finds room.
    (task,) = await world.claim(engine, worker)
    await world.confirm(engine, worker, task)
    assert engine.acceptance.problem == reason
    await world.add(engine)
    assert engine.acceptance.problem is None


async def test_without_new_work_the_watch_finds_out_that_there_is_space(world: World) -> None:
    engine = await world.start()
    world.faults.raise_at("before COMMIT", full())
    with pytest.raises(Unavailable):
        await world.add(engine)
    world.faults.raise_at("reserve_space", full())
    with pytest.raises(Lost):
        await SpaceWatch().run_once(engine)
    assert engine.acceptance.problem == "storage_full"
    assert (await SpaceWatch().run_once(engine)).count == 1
    assert not engine.acceptance.has_no_space
    assert await world.database.rows("SELECT * FROM space_probe") == []
    world.faults.points.clear()
    assert (await SpaceWatch().run_once(engine)).count == 0
    assert world.faults.points == []


async def test_a_lost_connection_is_a_problem_until_the_lane_commits_again(world: World) -> None:
    engine = await world.start()
    world.faults.raise_at("before COMMIT", Lost("cut"))
    with pytest.raises(Unavailable):
        await world.add(engine)
    assert engine.acceptance.problem == "store_unreachable"
    await world.settle(engine)
    assert engine.acceptance.problem is None


async def test_conflicts_are_no_problem_of_the_store(world: World) -> None:
    engine = await world.start()
    world.faults.raise_at("before COMMIT", Lost("again", reason="conflict"))
    with pytest.raises(Unavailable):
        await world.add(engine)
    assert engine.acceptance.problem is None
