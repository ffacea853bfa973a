"""Sharing out: each task goes to the largest free share of a window, however it came."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tenure.core.limits import OFFERS_COMPARED_MAX
from tenure.core.task.record import TaskState
from tenure.engine.access.command import SetQueue
from tenure.engine.engine import Engine
from tenure.engine.services.claim_fallback import ClaimFallback
from tenure.engine.worker.command import OpenSession
from tests.engine.world import NAMESPACE, QUEUE, Sink, World

MANY = 5_000


async def idle_sessions(world: World, engine: Engine, count: int, window: int = 100) -> list[Sink]:
    """Open sessions, all at once."""
    workers = await asyncio.gather(*(world.worker(engine, slots=window) for _ in range(count)))
    return await sessions_of(world, engine, workers, window)


async def sessions_of(
    world: World, engine: Engine, workers: list[str], window: int = 100
) -> list[Sink]:
    opened = await asyncio.gather(*(world.session(engine, each, window=window) for each in workers))
    return [sink for sink, _ in opened]


async def shares(world: World, engine: Engine, sinks: list[Sink]) -> list[int]:
    """Return how many tasks each session got, the largest number first."""
    await world.settle(engine)
    return sorted((len(sink.take()) for sink in sinks), reverse=True)


class TestIssue14ItemA15:
    @pytest.mark.parametrize(
        ("count", "expected"), [(10, [4, 3, 3]), (100, [34, 33, 33]), (150, [50, 50, 50])]
    )
    async def test_a_bulk_is_shared_by_three_idle_sessions(
        self, world: World, engine: Engine, count: int, expected: list[int]
    ) -> None:
        sinks = await idle_sessions(world, engine, 3)
        await world.add(engine, count)
        assert await shares(world, engine, sinks) == expected

    async def test_concurrent_enqueues_are_shared_by_three_idle_sessions(
        self, world: World, engine: Engine
    ) -> None:
        sinks = await idle_sessions(world, engine, 3)
        await asyncio.gather(*(world.add(engine) for _ in range(100)))
        assert await shares(world, engine, sinks) == [34, 33, 33]

    async def test_one_task_after_the_other_is_shared_by_three_idle_sessions(
        self, world: World, engine: Engine
    ) -> None:
        sinks = await idle_sessions(world, engine, 3)
        for _ in range(9):
            await world.add(engine)
        assert await shares(world, engine, sinks) == [3, 3, 3]

    async def test_a_backlog_is_shared_by_three_sessions_that_open_at_once(
        self, world: World, engine: Engine
    ) -> None:
        await world.add(engine, 100)
        sinks = await idle_sessions(world, engine, 3)
        assert await shares(world, engine, sinks) == [34, 33, 33]

    async def test_a_backlog_is_shared_with_sessions_that_open_while_the_first_one_is_stored(
        self, world: World, engine: Engine
    ) -> None:
        await world.add(engine, 100)
        first, *others = [await world.worker(engine, slots=100) for _ in range(3)]
        sinks = [Sink(), Sink()]

        def open_others() -> None:
            for worker, sink in zip(others, sinks, strict=True):
                engine.submit(
                    OpenSession(
                        namespace=NAMESPACE, worker_id=worker, held=(), window=100, sink=sink
                    )
                )

        world.faults.call_at("before COMMIT", open_others)
        sinks += await sessions_of(world, engine, [first])
        assert await shares(world, engine, sinks) == [34, 33, 33]

    async def test_waiting_polls_share_a_bulk(self, world: World, engine: Engine) -> None:
        workers = [await world.worker(engine, slots=100) for _ in range(3)]
        polls = [world.poll(engine, each, max_tasks=100) for each in workers]
        await world.settle(engine)
        await world.add(engine, 100)
        assert sorted([len(await poll) for poll in polls]) == [33, 33, 34]

    async def test_a_backlog_is_shared_by_polls(self, world: World, engine: Engine) -> None:
        workers = [await world.worker(engine, slots=100) for _ in range(3)]
        await world.add(engine, 100)
        polls = [world.poll(engine, each, max_tasks=100) for each in workers]
        assert sorted([len(await poll) for poll in polls]) == [33, 33, 34]

    async def test_a_busy_worker_gets_less_than_an_idle_one(
        self, world: World, engine: Engine
    ) -> None:
        (busy,) = await idle_sessions(world, engine, 1, window=10)
        await world.add(engine, 6)
        assert await shares(world, engine, [busy]) == [6]
        (idle,) = await idle_sessions(world, engine, 1, window=10)
        await world.add(engine, 6)
        await world.settle(engine)
        assert (len(busy.take()), len(idle.take())) == (0, 6)

    async def test_a_large_window_gets_more_than_a_small_one(
        self, world: World, engine: Engine
    ) -> None:
        (small,) = await idle_sessions(world, engine, 1, window=10)
        (large,) = await idle_sessions(world, engine, 1, window=90)
        await world.add(engine, 50)
        await world.settle(engine)
        assert (len(small.take()), len(large.take())) == (5, 45)

    async def test_the_poll_of_a_busy_worker_gets_less_than_that_of_an_idle_one(
        self, world: World, engine: Engine
    ) -> None:
        busy, idle = [await world.worker(engine, slots=10) for _ in range(2)]
        await world.add(engine, 6)
        assert len(await world.claim(engine, busy)) == 6
        polls = [world.poll(engine, each, max_tasks=4) for each in (busy, idle)]
        await world.settle(engine)
        await world.add(engine, 4)
        assert [len(await polls[1]), polls[0].done()] == [4, False]


async def test_a_task_reaches_the_only_one_that_can_run_it_behind_many_others(
    world: World, engine: Engine
) -> None:
    await idle_sessions(world, engine, OFFERS_COMPARED_MAX + 1)
    worker = await world.worker(engine, "sms")
    sink, _ = await world.session(engine, worker)
    await world.add(engine, 2, type="sms")
    await world.settle(engine)
    assert len(sink.take()) == 2


async def test_more_tasks_than_the_compared_offers_can_take_are_given_in_one_batch(
    world: World, engine: Engine
) -> None:
    sinks = await idle_sessions(world, engine, 2 * OFFERS_COMPARED_MAX, window=1)
    world.faults.points.clear()
    await world.add(engine, 2 * OFFERS_COMPARED_MAX)
    assert [len(sink.take()) for sink in sinks] == [1] * len(sinks)
    assert world.faults.points.count("after COMMIT") == 1


async def test_a_session_that_is_full_does_not_stand_in_the_way(
    world: World, engine: Engine
) -> None:
    full = await idle_sessions(world, engine, OFFERS_COMPARED_MAX, window=1)
    await world.add(engine, OFFERS_COMPARED_MAX)
    assert set(await shares(world, engine, full)) == {1}
    (idle,) = await idle_sessions(world, engine, 1)
    await world.add(engine, 3)
    await world.settle(engine)
    assert len(idle.take()) == 3


async def test_late_workers_do_not_keep_a_task_from_others(world: World, engine: Engine) -> None:
    late = await world.register(engine)
    silent, _ = await world.session(engine, late.worker.id)
    await world.advance(2 * late.interval_ms)
    (heard,) = await idle_sessions(world, engine, 1)
    (task_id,) = await world.add(engine)
    await world.settle(engine)
    assert [task.id for task in heard.take()] == [task_id]
    assert silent.take() == []


async def test_a_late_worker_gets_work_again_with_the_fallback_after_it_was_heard(
    world: World, engine: Engine
) -> None:
    late = await world.register(engine)
    sink, _ = await world.session(engine, late.worker.id)
    await world.advance(2 * late.interval_ms)
    (task_id,) = await world.add(engine)
    await world.settle(engine)
    await world.beat(engine, late.worker.id, late.lease.token)
    await world.round(ClaimFallback(), engine)
    assert [task.id for task in sink.take()] == [task_id]


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
class TestManySessions:
    async def test_batches_reach_five_thousand_sessions_in_turn(
        self, world: World, engine: Engine
    ) -> None:
        sinks = await idle_sessions(world, engine, MANY)
        for _ in range(MANY // 100):
            await world.add(engine, 100)
        spread = Counter(await shares(world, engine, sinks))
        # 64 are compared at a time, so that 100 tasks are one or two for each.
        assert sum(count * number for count, number in spread.items()) == MANY
        assert max(spread) <= 2
        assert spread[0] <= MANY * 36 / 100

    async def test_a_backlog_is_shared_by_five_thousand_sessions(
        self, world: World, engine: Engine
    ) -> None:
        sinks = await idle_sessions(world, engine, MANY)
        await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=True))
        for _ in range(MANY // 1_000):
            await world.add(engine, 1_000)
        await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=False))
        spread = await shares(world, engine, sinks)
        assert sum(spread) == MANY
        assert max(spread) <= 16
        ready = await world.database.rows("SELECT count(*) AS n FROM tasks WHERE line > 0")
        assert ready == [{"n": 0}]


async def test_nobody_gets_a_task_of_a_paused_queue(world: World, engine: Engine) -> None:
    sinks = await idle_sessions(world, engine, 3)
    await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=True))
    (task_id,) = await world.add(engine)
    assert await shares(world, engine, sinks) == [0, 0, 0]
    assert await world.state(task_id) is TaskState.PENDING
