"""What an engine counts of its batches, step by step."""

from __future__ import annotations

import pytest

from tenure.core.task.record import TaskState
from tenure.engine.engine import Engine
from tenure.engine.read.sample import take_sample
from tenure.engine.statistics import counter as counter_module
from tenure.engine.statistics.figures import Figures, note, percentiles_ms, total
from tenure.engine.task.command import CancelTask, FinishKind, FinishTasks
from tenure.engine.worker.command import EvictWorker, ReleaseHeldTasks
from tests.engine.world import FATAL, NAMESPACE, OTHER_NAMESPACE, World, finish


def last_minute(engine: Engine, queue: str = "default") -> Figures:
    return engine.statistics.last_minute(NAMESPACE).get(queue, Figures())


async def test_what_happens_to_tasks_is_counted_by_queue(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    *_, third = await world.add(engine, 3)
    await world.advance(400)
    first, second = await world.claim(engine, worker, max_tasks=2)
    await world.advance(2_000)
    done = finish(first)
    failed = finish(second, FinishKind.FAILED, error=FATAL)
    await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(done, failed)))
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=third))
    await world.enqueue(engine, world.new(queue="elsewhere"), namespace=OTHER_NAMESPACE)
    found = last_minute(engine)
    assert (found.enqueued, found.started, found.succeeded) == (3, 2, 1)
    assert (found.failed, found.cancelled, found.lost) == (1, 1, 0)
    assert sum(found.wait) == sum(found.run) == 2
    assert 250 < percentiles_ms(found.wait)[0] <= 500
    assert 1_000 < percentiles_ms(found.run)[0] <= 2_500
    assert engine.statistics.last_minute(NAMESPACE).keys() == {"default"}


async def test_an_attempt_that_its_worker_took_down_is_lost(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    await world.held(engine, worker)
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await engine.submit(ReleaseHeldTasks(worker_id=worker, amount=10))
    found = last_minute(engine)
    assert (found.started, found.lost, found.failed) == (1, 1, 0)


async def test_a_minute_later_nothing_has_happened_in_the_last_one(
    world: World, engine: Engine
) -> None:
    await world.add(engine, 2)
    await world.advance(30_000)
    await world.add(engine)
    assert last_minute(engine).enqueued == 3
    await world.advance(31_000)
    assert last_minute(engine).enqueued == 1
    await world.advance(40_000)
    assert last_minute(engine).enqueued == 0
    steps = [
        (at_ms, step.types["mail"].enqueued)
        for at_ms, _, step in engine.statistics.steps(NAMESPACE, 0)
    ]
    assert [count for _, count in steps] == [2, 1]
    assert steps[1][0] - steps[0][0] == 30_000
    await world.advance(3_600_000)
    assert list(engine.statistics.steps(NAMESPACE, 0)) == []


async def test_a_step_has_what_the_sample_has_seen_also_where_nothing_happens(
    world: World, engine: Engine
) -> None:
    await world.add(engine, 2)
    await world.advance(20_000)
    engine.statistics.sampled(await take_sample(engine.store, deaf=()))
    engine.statistics.roll()
    await world.advance(10_000)
    (_, step) = [step for _, _, step in engine.statistics.steps(NAMESPACE, 0)]
    assert (step.types, step.pending, step.oldest_waiting_ms) == ({}, 2, 20_000)


async def test_of_many_tasks_a_share_of_the_batches_is_counted_with_its_weight(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_module, "STATISTICS_WHOLE_MAX", 3)
    await world.advance(10_000)
    await world.add(engine)
    assert last_minute(engine).enqueued == 1
    # The clock of the tests draws 0.5: with eight to one this batch is none of those that count.
    await world.add(engine, 5)
    assert last_minute(engine).enqueued in {1, 3, 4}
    monkeypatch.setattr(world.clock, "jitter", lambda: 0.1)
    before = last_minute(engine).enqueued
    for _ in range(3):
        await world.add(engine)
    assert last_minute(engine).enqueued > before + 3


async def test_queues_and_types_beyond_a_limit_are_added_up(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_module, "STATISTICS_QUEUES_MAX", 2)
    monkeypatch.setattr(counter_module, "STATISTICS_TYPES_MAX", 2)
    for type_ in ("a", "b", "c", "d"):
        await world.add(engine, type=type_)
    for queue in ("second", "third", "fourth"):
        await world.add(engine, queue=queue)
    found = {queue: step for _, queue, step in engine.statistics.steps(NAMESPACE, 0)}
    assert {name: each.enqueued for name, each in found["default"].types.items()} == {
        "a": 1,
        "b": 1,
        "other": 2,
    }
    assert found.keys() == {"default", "second", "other"}
    assert total(found["other"].types.values()).enqueued == 2


def test_a_percentile_lies_between_the_bounds_of_its_latencies() -> None:
    counts: list[int] = []
    for latency_ms in (3, 3, 3, 40, 9_000_000):
        note(counts, latency_ms, 1)
    p50, p95, p99 = percentiles_ms(counts)
    assert 2 < p50 <= 5
    assert 3_600_000 < p95 <= p99 <= 7_200_000
    assert percentiles_ms([]) == (0, 0, 0)
    assert percentiles_ms([4]) == (0, 1, 1)


def test_figures_add_up_whatever_their_lengths() -> None:
    whole = total([Figures(1, wait=[1]), Figures(2, wait=[0, 3]), Figures(succeeded=4)])
    assert whole == Figures(3, succeeded=4, wait=[1, 3])
    assert TaskState.SUCCEEDED in set(TaskState)
