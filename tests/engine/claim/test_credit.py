"""Credit: a worker never holds more than its slots, however and wherever it asks for work."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tenure.engine.services.claim_fallback import ClaimFallback
from tenure.engine.task.command import CancelTask, FinishKind, TerminateTask
from tests.engine.world import NAMESPACE, World

SLOTS = 3
RACES = 20


@pytest.fixture
async def worker(world: World, engine: Engine) -> str:
    """A worker with few slots, and more tasks than it may hold."""
    registered = await world.worker(engine, slots=SLOTS)
    await world.add(engine, 10)
    return registered


async def held_count(world: World, worker_id: str) -> int:
    sql = f"SELECT count(*) AS n FROM tasks WHERE worker_id = '{worker_id}'"
    return int((await world.database.rows(sql))[0]["n"])


class TestIssue14ItemA16:
    async def test_polls_one_after_the_other_fill_the_slots_and_no_more(
        self, world: World, engine: Engine, worker: str
    ) -> None:
        counts = [len(await world.claim(engine, worker)) for _ in range(3)]
        assert counts == [3, 0, 0]
        assert await held_count(world, worker) == SLOTS

    async def test_parallel_polls_share_the_slots(
        self, world: World, engine: Engine, worker: str
    ) -> None:
        polls = [world.poll(engine, worker, max_tasks=10, wait_ms=0) for _ in range(4)]
        assert sum([len(await poll) for poll in polls]) == SLOTS
        assert await held_count(world, worker) == SLOTS

    async def test_a_session_and_a_poll_share_the_slots(
        self, world: World, engine: Engine, worker: str
    ) -> None:
        sink, _ = await world.session(engine, worker, window=100)
        assert len(sink.take()) == SLOTS
        assert await world.claim(engine, worker) == ()
        assert await held_count(world, worker) == SLOTS

    async def test_a_poll_that_came_first_leaves_its_session_the_rest(
        self, world: World, engine: Engine, worker: str
    ) -> None:
        sink, _ = await world.session(engine, worker, window=0)
        assert len(await world.claim(engine, worker, max_tasks=2)) == 2
        engine.set_window(worker, SLOTS)
        await world.settle(engine)
        assert len(sink.take()) == 1

    async def test_a_session_knows_what_a_poll_was_given_at_another_server(
        self, world: World, engine: Engine, worker: str
    ) -> None:
        other = await world.start()
        sink, _ = await world.session(engine, worker, window=0)
        assert len(await world.claim(other, worker, max_tasks=2)) == 2
        engine.set_window(worker, SLOTS)
        await world.settle(engine)
        assert len(sink.take()) == 1
        assert await held_count(world, worker) == SLOTS

    async def test_polls_at_two_servers_share_the_slots(
        self, world: World, engine: Engine, worker: str
    ) -> None:
        other = await world.start()
        for each in (engine, other, engine):
            await world.claim(each, worker, max_tasks=2)
        assert await held_count(world, worker) == SLOTS

    @pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
    async def test_polls_that_race_at_two_servers_share_the_slots(
        self, world: World, engine: Engine
    ) -> None:
        engines = [engine, await world.start()]
        workers = [await world.worker(engine, slots=SLOTS) for _ in range(RACES)]
        await world.add(engine, 5 * RACES)
        polls = [
            world.poll(engines[(at + number) % 2], each, max_tasks=2, wait_ms=0)
            for at, each in enumerate(workers)
            for number in range(4)
        ]
        given = [await poll for poll in polls]
        assert sum(map(len, given)) == SLOTS * RACES
        assert {await held_count(world, each) for each in workers} == {SLOTS}

    @pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
    async def test_lone_polls_that_race_at_two_servers_share_one_slot(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        for _ in range(RACES):
            worker = await world.worker(engine, slots=1)
            await world.add(engine, 2)
            for each in (engine, other):
                # Both servers know the worker now, and that there is work.
                await world.claim(each, worker, max_tasks=1)
            polls = [world.poll(each, worker, wait_ms=0) for each in (engine, other)]
            given = [await poll for poll in polls]
            assert sum(map(len, given)) == 0
            assert await held_count(world, worker) == 1


async def end_attempt(world: World, engine: Engine, worker: str, task: Task, way: str) -> None:
    """Let an attempt end by its worker, or by somebody else."""
    if way == "finished":
        await world.finish(engine, worker, task)
    elif way == "deferred":
        await world.confirm(engine, worker, task)
        await world.finish(engine, worker, task, FinishKind.DEFERRED)
    else:
        command = CancelTask if way == "cancelled" else TerminateTask
        await engine.submit(command(namespace=NAMESPACE, task_id=task.id))


@pytest.mark.parametrize("way", ["finished", "deferred", "cancelled", "terminated"])
async def test_a_poll_that_waits_for_a_slot_is_served_when_an_attempt_ends(
    world: World, engine: Engine, worker: str, way: str
) -> None:
    first, *_ = await world.claim(engine, worker)
    poll = world.poll(engine, worker, max_tasks=10)
    await world.settle(engine)
    assert not poll.done()
    await end_attempt(world, engine, worker, first, way)
    await world.settle(engine)
    assert len(poll.result()) == 1
    assert await held_count(world, worker) == SLOTS


async def test_the_batch_that_accepts_completions_serves_the_poll_that_waits_for_them(
    world: World, engine: Engine, worker: str
) -> None:
    first, *_ = await world.claim(engine, worker)
    poll = world.poll(engine, worker, max_tasks=10)
    await world.settle(engine)
    world.faults.points.clear()
    await world.finish(engine, worker, first)
    assert world.faults.points.count("after COMMIT") == 1
    assert len(await poll) == 1


async def test_a_poll_that_waits_for_a_slot_is_served_by_the_fallback_of_another_server(
    world: World, engine: Engine, worker: str
) -> None:
    other = await world.start()
    first, *_ = await world.claim(engine, worker)
    poll = world.poll(other, worker, max_tasks=10)
    await world.settle(other)
    await world.finish(engine, worker, first)
    await world.advance(1_000)
    await world.round(ClaimFallback(), other)
    assert len(await poll) == 1


async def test_polls_that_wait_for_a_slot_do_not_keep_tasks_from_others(
    world: World, engine: Engine
) -> None:
    full = [await world.worker(engine, slots=1) for _ in range(100)]
    for each in full:
        await world.held(engine, each)
    polls = [world.poll(engine, each) for each in full]
    await world.settle(engine)
    idle = world.poll(engine, await world.worker(engine))
    await world.settle(engine)
    (task_id,) = await world.add(engine)
    await world.settle(engine)
    assert [task.id for task in idle.result()] == [task_id]
    assert not any(poll.done() for poll in polls)


async def test_a_poll_of_a_worker_without_a_free_slot_leaves_the_task_to_a_later_one(
    world: World, engine: Engine
) -> None:
    """What the first poll's worker holds is known only once a batch has counted it."""
    full, idle = await world.worker(engine, slots=1), await world.worker(engine)
    await world.held(engine, full)
    polls = [world.poll(engine, each) for each in (full, idle)]
    await world.settle(engine)
    await asyncio.gather(*(world.add(engine) for _ in range(3)))
    await world.settle(engine)
    assert [poll.done() for poll in polls] == [False, True]


async def test_a_window_beyond_the_slots_is_cut(world: World, engine: Engine, worker: str) -> None:
    sink, _ = await world.session(engine, worker, window=1)
    engine.set_window(worker, 100)
    await world.settle(engine)
    assert len(sink.take()) == SLOTS
