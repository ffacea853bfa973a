"""What others append to the journal of a held run reaches the session that holds it."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.journal.entry import EntryKind
from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tests.engine.run.runs import (
    cancel,
    give_up_slot,
    positions,
    record,
    report,
    signal,
    start,
    step,
)
from tests.engine.world import Sink, World, ref
from tests.polling import eventually


@pytest.fixture
async def there(engine: Engine, world: World) -> Engine:
    """A second server on the same database."""
    del engine
    return await world.start()


async def held(world: World, engine: Engine) -> tuple[str, Sink, Task]:
    """Let a session have a run."""
    worker = await world.worker(engine)
    sink, _ = await world.session(engine, worker)
    await start(world, engine)
    await eventually(lambda: sink.given)
    (task,) = sink.take()
    await world.confirm(engine, worker, task)
    return worker, sink, task


def told(sink: Sink) -> list[tuple[int, list[EntryKind], int]]:
    return [(page.after, [each.kind for each in page.entries], page.end) for _, page in sink.pages]


async def test_a_signal_reaches_the_session_that_holds_the_run(
    world: World, engine: Engine
) -> None:
    worker, sink, task = await held(world, engine)
    await positions(engine, worker, report(task, step("a"), step("b")))
    await signal(engine, task.id)
    await world.settle(engine)
    assert [each for each, _ in sink.pages] == [ref(task)]
    assert told(sink) == [(2, [EntryKind.SIGNAL], 3)]


async def test_a_cancel_comes_as_a_request_and_as_an_entry(world: World, engine: Engine) -> None:
    _, sink, task = await held(world, engine)
    await cancel(engine, task.id, "enough")
    await world.settle(engine)
    assert sink.cancelled == [ref(task)]
    assert told(sink) == [(0, [EntryKind.CANCEL], 1)]


async def test_signals_of_one_batch_come_as_one_page_with_what_is_between_them(
    world: World, engine: Engine
) -> None:
    worker, sink, task = await held(world, engine)
    await asyncio.gather(
        signal(engine, task.id, "a"),
        record(engine, worker, report(task)),
        signal(engine, task.id, "b"),
    )
    await world.settle(engine)
    assert told(sink) == [(0, [EntryKind.SIGNAL, EntryKind.STEP, EntryKind.SIGNAL], 3)]


async def test_steps_of_the_holder_are_not_sent_back(world: World, engine: Engine) -> None:
    worker, sink, task = await held(world, engine)
    await positions(engine, worker, report(task))
    await world.settle(engine)
    assert sink.pages == []


async def test_nobody_is_told_of_a_run_that_waits(world: World, engine: Engine) -> None:
    worker, sink, task = await held(world, engine)
    await give_up_slot(world, engine, worker, task)
    await signal(engine, task.id)
    await eventually(lambda: sink.given)
    assert sink.pages == []


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_what_another_server_appends_is_read_and_sent(
    world: World, engine: Engine, there: Engine
) -> None:
    worker, sink, task = await held(world, engine)
    await positions(engine, worker, report(task))
    await signal(there, task.id)
    await eventually(lambda: sink.pages)
    assert told(sink) == [(1, [EntryKind.SIGNAL], 2)]
    # The end that was remembered here is stale, and the next step has its place all the same.
    assert await positions(engine, worker, report(task, first_no=2)) == [3]


async def test_a_lost_hint_costs_nothing_but_time(
    world: World, engine: Engine, there: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, sink, task = await held(world, engine)
    await positions(engine, worker, report(task))

    async def lose(*_: str) -> None:
        pass

    monkeypatch.setattr(there.store, "notify", lose)
    await signal(there, task.id)
    assert await positions(engine, worker, report(task, first_no=2)) == [3]
    await give_up_slot(world, engine, worker, task, seen=1)
    await eventually(lambda: sink.given)
    assert sink.pages == []
