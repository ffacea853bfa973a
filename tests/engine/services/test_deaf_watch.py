"""Deaf workers: work waits for them, they have free slots, and they do not ask for it."""

from __future__ import annotations

from typing import Any

from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerMode
from tenure.engine.access.command import SetQueue
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.services.deaf_watch import DeafWatch
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tests.engine.world import NAMESPACE, World, heartbeat

LEASE_MS = 30_000
TWO_INTERVALS_MS = 20_000


async def deaf_worker(world: World, engine: Engine, *types: str, **changes: Any) -> str:
    """Register a worker that beats for ever and does nothing else."""
    return await world.worker(engine, *types, **{"lease_ms": LEASE_MS, **changes})


async def watched(world: World, engine: Engine, watch: DeafWatch, ms: int) -> frozenset[str]:
    """Let time pass under the eyes of the watch."""
    await watch.run_once(engine)
    for _ in range(0, ms, 5_000):
        await world.advance(5_000)
        await watch.run_once(engine)
    return engine.deaf


async def test_a_worker_is_deaf_after_two_intervals_of_silence_with_work_waiting(
    world: World, engine: Engine
) -> None:
    worker = await deaf_worker(world, engine)
    await deaf_worker(world, engine, "sms")
    await deaf_worker(world, engine, queue="slow")
    watch = DeafWatch()
    assert await watched(world, engine, watch, 60_000) == frozenset()
    await world.add(engine)
    assert await watched(world, engine, watch, TWO_INTERVALS_MS - 5_000) == frozenset()
    assert await watched(world, engine, watch, 5_000) == {worker}
    await world.beat(engine, worker, 1)
    view = await query.get_worker(
        engine.store, namespace=NAMESPACE, worker_id=worker, deaf=engine.deaf
    )
    assert view.health is Health.DEAF


async def test_who_polls_again_is_deaf_no_more(world: World, engine: Engine) -> None:
    worker = await deaf_worker(world, engine)
    await world.add(engine, 2)
    watch = DeafWatch()
    assert await watched(world, engine, watch, TWO_INTERVALS_MS) == {worker}
    await world.beat(engine, worker, 1)
    await world.claim(engine, worker, max_tasks=1)
    assert await watched(world, engine, watch, TWO_INTERVALS_MS - 5_000) == frozenset()
    assert await watched(world, engine, watch, 5_000) == {worker}


async def test_whom_nothing_waits_for_any_more_is_deaf_no_more(
    world: World, engine: Engine
) -> None:
    worker, other = await deaf_worker(world, engine), await deaf_worker(world, engine)
    await world.add(engine)
    watch = DeafWatch()
    assert await watched(world, engine, watch, TWO_INTERVALS_MS) == {worker, other}
    await world.beat(engine, other, 1)
    await world.claim(engine, other)
    assert await watched(world, engine, watch, 0) == frozenset()


async def test_a_full_worker_is_not_deaf(world: World, engine: Engine) -> None:
    worker = await deaf_worker(world, engine, slots=2)
    await world.add(engine, 3)
    await world.claim(engine, worker, max_tasks=2)
    assert await watched(world, engine, DeafWatch(), 60_000) == frozenset()


async def test_a_slot_that_a_stuck_run_holds_is_not_free(world: World, engine: Engine) -> None:
    worker = await deaf_worker(world, engine, slots=2)
    await world.add(engine, 3)
    await world.claim(engine, worker, max_tasks=1)
    watch = DeafWatch()
    await world.beat(engine, worker, 1, stuck_count=1)
    assert await watched(world, engine, watch, TWO_INTERVALS_MS) == frozenset()
    assert (await world.view(worker)).health is not Health.DEAF
    await world.beat(engine, worker, 2, stuck_count=0)
    assert await watched(world, engine, watch, TWO_INTERVALS_MS) == {worker}


async def test_an_open_poll_is_listening_even_if_nothing_may_be_given(
    world: World, engine: Engine
) -> None:
    worker = await deaf_worker(world, engine, "mail", "sms")
    poll = world.poll(engine, worker, types=frozenset({"sms"}))
    await world.settle(engine)
    await world.add(engine)
    assert await watched(world, engine, DeafWatch(), 60_000) == frozenset()
    poll.cancel()


async def test_a_session_without_credit_is_deaf_and_one_with_credit_is_not(
    world: World, engine: Engine
) -> None:
    shut = await deaf_worker(world, engine, mode=WorkerMode.SESSION)
    await world.session(engine, shut, window=0)
    await world.add(engine)
    watch = DeafWatch()
    assert await watched(world, engine, watch, TWO_INTERVALS_MS) == {shut}
    engine.set_window(shut, 5)
    await world.settle(engine)
    assert await watched(world, engine, watch, 0) == frozenset()


async def test_a_queue_whose_worker_is_full_with_tasks_of_its_other_queues_is_not_deaf(
    world: World, engine: Engine
) -> None:
    worker = await deaf_worker(world, engine, mode=WorkerMode.SESSION)
    await world.session(engine, worker, window=0)
    await world.add(engine)
    watch = DeafWatch()
    for token in range(1, 11):
        assert await watched(world, engine, watch, 10_000) == frozenset()
        await engine.heartbeat(heartbeat(engine, worker, token, is_full=True))
    # It has a free slot again, and does not ask for work.
    assert await watched(world, engine, watch, TWO_INTERVALS_MS - 5_000) == frozenset()
    assert await watched(world, engine, watch, 5_000) == {worker}


async def test_a_session_whose_small_window_is_always_in_use_is_not_deaf(
    world: World, engine: Engine
) -> None:
    worker = await deaf_worker(world, engine, mode=WorkerMode.SESSION)
    await world.add(engine, 20)
    sink, _ = await world.session(engine, worker, window=1)
    watch = DeafWatch()
    for token in range(1, 11):
        assert await watched(world, engine, watch, 5_000) == frozenset()
        await world.beat(engine, worker, token)
        (task,) = sink.take()
        await world.finish(engine, worker, task)
        await world.settle(engine)


async def test_a_task_that_nobody_may_be_given_makes_nobody_deaf(
    world: World, engine: Engine
) -> None:
    worker, quick = await deaf_worker(world, engine), await deaf_worker(world, engine)
    await world.add(engine, 2)
    await engine.submit(SetQueue(namespace=NAMESPACE, name="default", is_paused=True))
    watch = DeafWatch()
    assert await watched(world, engine, watch, 60_000) == frozenset()
    for each in (worker, quick):
        await world.beat(engine, each, 1)
    await engine.submit(
        SetQueue(namespace=NAMESPACE, name="default", is_paused=False, concurrency_max=1)
    )
    await world.claim(engine, quick, max_tasks=1)
    assert await watched(world, engine, watch, 60_000) == frozenset()
    await engine.submit(SetQueue(namespace=NAMESPACE, name="default", concurrency_max=2))
    assert worker in await watched(world, engine, watch, TWO_INTERVALS_MS)


async def test_another_server_watches_its_own_workers_and_sees_work_taken_elsewhere(
    world: World, engine: Engine
) -> None:
    mine, theirs = await deaf_worker(world, engine), await deaf_worker(world, engine)
    other = await world.start()
    await world.beat(other, theirs, 1)
    await world.add(engine, 20)
    watch, other_watch = DeafWatch(), DeafWatch()
    for _ in range(6):
        # Its heartbeats come here, its polls go there.
        await world.claim(other, mine, max_tasks=1)
        await watched(world, engine, watch, 5_000)
        await other_watch.run_once(other)
    assert engine.deaf == frozenset()
    assert other.deaf == {theirs}


async def test_a_worker_that_drains_or_ends_is_watched_no_more(
    world: World, engine: Engine
) -> None:
    draining, gone = await deaf_worker(world, engine), await deaf_worker(world, engine)
    await world.add(engine)
    watch = DeafWatch()
    assert await watched(world, engine, watch, TWO_INTERVALS_MS) == {draining, gone}
    await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=draining))
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=gone))
    assert await watched(world, engine, watch, 0) == frozenset()


async def test_a_round_looks_at_a_part_of_the_workers_and_goes_on_behind_them(
    world: World, engine: Engine
) -> None:
    workers = [await deaf_worker(world, engine) for _ in range(5)]
    await world.add(engine)
    watch = DeafWatch(amount=2)
    for _ in range(3):
        await watch.run_once(engine)
    await world.advance(TWO_INTERVALS_MS)
    found = []
    for _ in range(3):
        await watch.run_once(engine)
        found.append(len(engine.deaf))
    assert found == [2, 4, 5]
    assert engine.deaf == set(workers)
