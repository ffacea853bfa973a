"""What is counted of runs: steps, lengths of journals, waking, and what is gone through again."""

from __future__ import annotations

import pytest

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.engine.engine import Engine
from tenure.engine.latencies import LATENCY_BOUNDS_MS
from tenure.engine.read.sample import take_sample
from tenure.engine.run import run_tally
from tenure.engine.run.run_tally import LENGTH_BOUNDS, RunTally
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import FinishKind
from tests.engine.run.runs import give_up_slot, held_run, record, report, signal, start, step
from tests.engine.test_meter import Meter
from tests.engine.world import FATAL, FAULT, World


@pytest.fixture
def tally(engine: Engine) -> RunTally:
    engine.meter = made = Meter()
    return made.tally.runs


async def test_steps_are_counted_by_type_kind_and_outcome(
    world: World, engine: Engine, tally: RunTally
) -> None:
    worker = await world.worker(engine)
    task = await held_run(world, engine, worker)
    failed = step("ship", output=None, error=FAULT)
    note = NewEntry(EntryKind.NOTE, "note", EntryBody(output=b"hello"))
    await record(engine, worker, report(task, step(), step("b"), failed, note))
    # Neither a repeat nor what others append is a step of a worker.
    await record(engine, worker, report(task))
    await signal(engine, task.id)
    await world.settle(engine)
    assert tally.steps == {
        ("mail", "step", "succeeded"): 2,
        ("mail", "step", "failed"): 1,
        ("mail", "note", "succeeded"): 1,
    }


async def test_types_beyond_the_limit_are_added_up(
    world: World, engine: Engine, tally: RunTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tally, "METRIC_TYPES_MAX", 1)
    worker = await world.worker(engine, "mail", "bill", "ship")
    for type in ("mail", "bill", "ship", "mail"):
        await start(world, engine, type=type)
        (task,) = await world.claim(engine, worker, types=frozenset({type}))
        await record(engine, worker, report(task))
    await world.settle(engine)
    assert tally.steps == {("mail", "step", "succeeded"): 2, ("other", "step", "succeeded"): 2}


async def test_the_length_of_a_journal_is_counted_at_the_end_of_its_run(
    world: World, engine: Engine, tally: RunTally
) -> None:
    worker = await world.worker(engine)
    task = await held_run(world, engine, worker)
    await record(engine, worker, report(task, step(), step("b"), step("c")))
    await world.finish(engine, worker, task)
    await world.finish(engine, worker, await held_run(world, engine, worker))
    await world.settle(engine)
    bounds = [*LENGTH_BOUNDS, float("inf")]
    found = {bound: each for bound, each in zip(bounds, tally.lengths.counts, strict=True) if each}
    assert found == {0: 1, 5: 1}
    assert tally.lengths.total == 3


async def test_waking_and_what_is_gone_through_again_are_counted(
    world: World, engine: Engine, tally: RunTally
) -> None:
    worker = await world.worker(engine)
    task = await held_run(world, engine, worker)
    await record(engine, worker, report(task, step(), step("b")))
    await give_up_slot(world, engine, worker, task, seen=2)
    await world.settle(engine)
    assert (sum(tally.wake.counts), tally.rerun_entry_count) == (0, 0)
    await signal(engine, task.id)
    await world.advance(40)
    (again,) = await world.claim(engine, worker)
    await world.settle(engine)
    assert (tally.wake.total_ms, tally.rerun_entry_count) == (40, 1)
    await world.finish(engine, worker, again, FinishKind.RELEASED)
    other = await world.worker(engine)
    await world.claim(engine, other)
    await world.settle(engine)
    assert (sum(tally.wake.counts), tally.rerun_entry_count) == (2, 4)
    assert len(tally.wake.counts) == len(LATENCY_BOUNDS_MS) + 1


async def test_a_run_is_late_from_when_its_timer_was_due(
    world: World, engine: Engine, tally: RunTally
) -> None:
    worker = await world.worker(engine)
    task = await held_run(world, engine, worker)
    await give_up_slot(world, engine, worker, task, wake_at_ms=world.clock.now_ms() + 1_000)
    # No server looks at timers for a while.
    await world.advance(6_000)
    await world.round(DueTasks(), engine)
    await world.advance(40)
    await world.claim(engine, worker)
    await world.settle(engine)
    assert (sum(tally.wake.counts), tally.wake.total_ms) == (1, 5_040)


async def test_a_sample_counts_runs_by_state_and_parked_ones_apart(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    parked = await held_run(world, engine, worker)
    await world.finish(engine, worker, parked, FinishKind.PARKED, error=FATAL)
    waiting = await held_run(world, engine, worker)
    await give_up_slot(world, engine, worker, waiting)
    await held_run(world, engine, worker)
    await start(world, engine)
    await world.add(engine)
    sample = await take_sample(engine.store, deaf=())
    assert sample.runs == {"parked": 1, "waiting": 1, "dispatched": 1, "pending": 1}
