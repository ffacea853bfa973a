"""What is in the store, in numbers."""

from __future__ import annotations

import pytest

from tenure.core.task.record import TaskState
from tenure.engine.access import command as c
from tenure.engine.engine import Engine
from tenure.engine.read import sample
from tenure.engine.services.child_closing import ChildClosing
from tests.engine.run.children import parent_of
from tests.engine.run.runs import terminate
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World


async def test_short_reads_count_what_one_long_read_counts(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await world.worker(engine)
    await world.add(engine, 3)
    await world.claim(engine, worker, max_tasks=1)
    for name in "abcde":
        await world.add(engine, 2, queue=name)
    delayed = world.clock.now_ms() + 60_000
    await world.enqueue(engine, world.new(run_at_ms=delayed), namespace=OTHER_NAMESPACE)
    await engine.submit(c.SetQueue(namespace=NAMESPACE, name="braked", is_paused=True))
    expected = {
        (NAMESPACE, "default"): {TaskState.PENDING: 2, TaskState.DISPATCHED: 1},
        **{(NAMESPACE, name): {TaskState.PENDING: 2} for name in "abcde"},
        (OTHER_NAMESPACE, "default"): {TaskState.PENDING: 1},
    }
    assert (await sample.take_sample(engine.store, deaf=())).depths == expected
    monkeypatch.setattr(sample, "PAGE_SIZE_MAX", 2)
    monkeypatch.setattr(sample, "SAMPLE_QUEUES_AT_ONCE", 1)
    monkeypatch.setattr(sample, "SAMPLE_ROWS_MAX", 1)
    assert (await sample.take_sample(engine.store, deaf=())).depths == expected
    monkeypatch.setattr(sample, "GROUPS_MAX", 3)
    assert len((await sample.take_sample(engine.store, deaf=())).depths) == 3


async def test_a_queue_is_counted_no_further_than_a_limit(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add(engine, 5)
    monkeypatch.setattr(sample, "DEPTH_COUNTED_MAX", 3)
    depths = (await sample.take_sample(engine.store, deaf=())).depths
    assert depths == {(NAMESPACE, "default"): {TaskState.PENDING: 3}}


async def test_children_that_are_not_closed_show_for_how_long(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run, _ = await parent_of(world, engine, worker)
    await terminate(engine, run.id)
    await world.advance(3_000)
    assert (await sample.take_sample(engine.store, deaf=())).closing_lag_ms == 3_000
    while (await ChildClosing().run_once(engine)).has_more:
        pass
    assert (await sample.take_sample(engine.store, deaf=())).closing_lag_ms == 0
