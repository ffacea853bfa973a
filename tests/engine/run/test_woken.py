"""A run that a batch wakes is handed out by the same batch, to the worker that had it last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.limits import DUE_BATCH_MAX
from tenure.core.task.record import Task, TaskState
from tenure.engine.access.command import SetQueue
from tenure.engine.claim import waiting_runs
from tenure.engine.engine import Engine
from tenure.engine.run.command import ResumeRun
from tenure.engine.task.command import FinishKind, ProcessDue
from tests.engine.run.runs import cancel, give_up_slot, positions, report, signal, start
from tests.engine.world import FATAL, NAMESPACE, NEVER_MS, QUEUE, Sink, World
from tests.polling import eventually

LARGE = b"x" * 100_000


async def session(world: World, engine: Engine, window: int = 10) -> tuple[str, Sink]:
    worker = await world.worker(engine)
    sink, _ = await world.session(engine, worker, window=window)
    return worker, sink


async def waiting(
    world: World, engine: Engine, worker: str, sink: Sink, *, entries: int = 0, **fields: Any
) -> Task:
    """Start a run, let a session have it and give it up again."""
    wish = {"seen": entries, "wake_at_ms": fields.pop("wake_at_ms", 0), "wake_key": "sleep"}
    await start(world, engine, **fields)
    await eventually(lambda: sink.given)
    (task,) = sink.take()
    await world.confirm(engine, worker, task)
    if entries:
        await positions(engine, worker, report(task, *report(task).entries * entries))
    await give_up_slot(world, engine, worker, task, **wish)
    row = await world.task(task.id)
    assert row.state is TaskState.WAITING
    return row


async def fire(world: World, engine: Engine, ms: int) -> None:
    await world.advance(ms)
    await engine.submit(ProcessDue(sighted_ms=NEVER_MS, amount=DUE_BATCH_MAX))


async def wake(world: World, engine: Engine, how: str, run: Task) -> None:
    if how == "signal":
        await signal(engine, run.id)
    elif how == "cancel":
        await cancel(engine, run.id)
    else:
        await fire(world, engine, 5_000)


@pytest.mark.parametrize("how", ["signal", "cancel", "timer"])
async def test_waking_and_handing_out_are_one_write(world: World, engine: Engine, how: str) -> None:
    worker, sink = await session(world, engine)
    wake_at_ms = engine.clock.now_ms() + 5_000
    row = await waiting(world, engine, worker, sink, entries=2, wake_at_ms=wake_at_ms)
    await wake(world, engine, how, row)
    (task,) = sink.take()
    after = await world.task(row.id)
    assert (after.state, after.attempt) == (TaskState.DISPATCHED, 2)
    assert after.version == row.version + 1
    assert task.link is not None
    assert task.link.page is not None
    assert [each.pos for each in task.link.page.entries] == [3]
    assert task.input == (await world.task(row.id)).input


async def test_a_parked_run_that_is_resumed_is_handed_out_at_once(
    world: World, engine: Engine
) -> None:
    worker, sink = await session(world, engine)
    await start(world, engine)
    await eventually(lambda: sink.given)
    (task,) = sink.take()
    await world.finish(engine, worker, task, FinishKind.PARKED, error=FATAL)
    row = await world.task(task.id)
    await engine.submit(ResumeRun(namespace=NAMESPACE, run_id=task.id))
    assert [each.attempt for each in sink.take()] == [2]
    assert (await world.task(task.id)).version == row.version + 1


async def test_a_run_is_stored_as_handed_out_when_somebody_waits_for_it(
    world: World, engine: Engine
) -> None:
    _, sink = await session(world, engine)
    run_id = await start(world, engine)
    assert [each.id for each in sink.take()] == [run_id]
    assert (await world.task(run_id)).version == 0


async def test_a_large_input_comes_with_the_woken_run(world: World, engine: Engine) -> None:
    worker, sink = await session(world, engine)
    row = await waiting(world, engine, worker, sink, input=LARGE)
    await signal(engine, row.id)
    (task,) = sink.take()
    assert task.input == LARGE


async def test_the_worker_that_had_the_run_gets_it_with_what_it_has_not_seen(
    world: World, engine: Engine
) -> None:
    worker, sink = await session(world, engine, window=2)
    row = await waiting(world, engine, worker, sink, entries=3)
    others = [await session(world, engine, window=10) for _ in range(3)]
    await signal(engine, row.id)
    (task,) = sink.take()
    assert task.link is not None
    assert task.link.page is not None
    assert (task.link.page.after, len(task.link.page.entries)) == (3, 1)
    assert not any(other.given for _, other in others)


async def test_another_worker_gets_the_run_if_its_home_has_no_slot(
    world: World, engine: Engine
) -> None:
    worker, sink = await session(world, engine, window=1)
    row = await waiting(world, engine, worker, sink, entries=3)
    await world.add(engine)
    await eventually(lambda: sink.given)
    _, other = await session(world, engine)
    await signal(engine, row.id)
    (task,) = other.take()
    assert task.link is not None
    assert task.link.page is not None
    assert (task.link.page.after, len(task.link.page.entries)) == (0, 4)


async def test_a_woken_run_of_a_paused_queue_stays_in_line(world: World, engine: Engine) -> None:
    worker, sink = await session(world, engine)
    row = await waiting(world, engine, worker, sink)
    await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=True, actor=""))
    await signal(engine, row.id)
    await world.settle(engine)
    assert (await world.task(row.id)).state is TaskState.PENDING
    await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=False, actor=""))
    await eventually(lambda: sink.given)


async def test_more_runs_than_slots_are_woken_and_the_rest_waits_in_line(
    world: World, engine: Engine
) -> None:
    worker, sink = await session(world, engine, window=2)
    rows = [await waiting(world, engine, worker, sink) for _ in range(3)]
    await asyncio.gather(*(signal(engine, each.id) for each in rows))
    await world.settle(engine)
    given = sink.take()
    assert len(given) == 2
    await give_up_slot(world, engine, worker, given[0], seen=1)
    await eventually(lambda: sink.given)
    assert {each.id for each in (*given, *sink.take())} == {each.id for each in rows}


async def test_a_run_that_this_server_does_not_know_is_handed_out_by_the_next_batch(
    world: World, engine: Engine
) -> None:
    worker, sink = await session(world, engine)
    row = await waiting(world, engine, worker, sink)
    other = await world.start()
    _, there = await session(world, other)
    await signal(other, row.id)
    await eventually(lambda: there.given)
    assert (await world.task(row.id)).version == row.version + 2


async def test_what_is_known_of_waiting_runs_is_bounded(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_runs, "WAITING_RUNS_MAX", 2)
    worker, sink = await session(world, engine)
    rows = []
    for number in range(6):
        wake_at_ms = engine.clock.now_ms() + 5_000 + number
        rows.append(await waiting(world, engine, worker, sink, wake_at_ms=wake_at_ms))
    await fire(world, engine, 6_000)
    await eventually(lambda: len(sink.given) == len(rows))
    fired = {each.id: await world.task(each.id) for each in rows}
    assert all(each.state is TaskState.DISPATCHED for each in fired.values())
