"""Exclusive attempts stay with a worker that was taken offline until its lease is over."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.task import exclusive
from tenure.core.task.attempt import Outcome
from tenure.core.task.event import WorkerLost
from tenure.core.task.record import Task, TaskState
from tenure.core.worker.record import WorkerMode
from tenure.engine.engine import Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.services.lease_judgement import LeaseJudgement
from tenure.engine.services.server_row import ServerTouch
from tenure.engine.task.command import ConfirmTasks, Reported
from tenure.engine.worker.command import DeregisterWorker, EvictWorker
from tests.engine.world import NAMESPACE, World, ref

LEASE_MS = 4_000
GRACE_MS = 500
# What the core adds to the end of the lease, for drift and for what has to be killed.
LATE_MS = 540


@pytest.fixture
async def engine(world: World) -> Engine:
    return await _start(world)


async def _start(world: World) -> Engine:
    return await world.start(
        poll_lease_ms=LEASE_MS,
        session_lease_ms=LEASE_MS,
        suspect_grace_ms=GRACE_MS,
        work_batch_max=20,
    )


async def confirm(engine: Engine, worker: str, *tasks: Task) -> list[bool]:
    """Confirm attempts as exclusive; return which of them the server holds as such."""
    refs = tuple(ref(each) for each in tasks)
    command = ConfirmTasks(
        namespace=NAMESPACE, worker_id=worker, items=refs, exclusive=frozenset(refs)
    )
    answers = await engine.submit(command)
    return [isinstance(each, Reported) and each.is_exclusive for each in answers]


async def evict(world: World, engine: Engine, worker: str) -> None:
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await world.settle(engine)


def test_what_is_added_to_the_lease_is_known_here() -> None:
    assert exclusive._late_ms(LEASE_MS) == LATE_MS  # noqa: SLF001 (the tests below count with it)
    assert WorkerLost(worker_id="w").lease_ms == 0


async def test_the_early_end_after_a_lost_session_is_not_for_exclusive_work(
    world: World, engine: Engine
) -> None:
    await world.watch(engine, LEASE_MS)
    worker = await world.worker(engine, mode=WorkerMode.SESSION)
    sink, answer = await world.session(engine, worker)
    await world.add(engine, 2)
    await world.settle(engine)
    alone, other = sink.take()
    assert await confirm(engine, worker, alone) == [True]
    await world.confirm(engine, worker, other)
    engine.lose_session(NAMESPACE, worker, answer.worker.session_no)
    await world.settle(engine)
    await world.watch(engine, GRACE_MS)
    await world.round(LeaseJudgement(), engine)
    assert await world.state(other.id) is TaskState.PENDING
    assert await world.state(alone.id) is TaskState.RUNNING
    assert not (await world.view(worker)).worker.release_pending

    await world.watch(engine, LEASE_MS - GRACE_MS + LATE_MS - 1)
    await world.round(DueTasks(), engine)
    assert await world.state(alone.id) is TaskState.RUNNING
    await world.watch(engine, 1)
    await world.round(DueTasks(), engine)
    back = await world.task(alone.id)
    assert (back.state, back.last_outcome) == (TaskState.PENDING, Outcome.WORKER_LOST)
    assert await world.database.rows("SELECT worker_id FROM ended_leases") == []


async def test_the_lease_counts_as_it_was_renewed_last(world: World, engine: Engine) -> None:
    await world.watch(engine, LEASE_MS)
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    await confirm(engine, worker, task)
    await world.watch(engine, 3_000)
    await world.beat(engine, worker, 1)
    await evict(world, engine, worker)
    await world.watch(engine, LEASE_MS + LATE_MS - 1)
    await world.round(DueTasks(), engine)
    assert await world.state(task.id) is TaskState.RUNNING
    await world.watch(engine, 1)
    await world.round(DueTasks(), engine)
    assert await world.state(task.id) is TaskState.PENDING


@pytest.mark.parametrize("how", ["evicted", "superseded"])
async def test_whoever_ends_a_worker_its_exclusive_work_waits_and_its_result_counts(
    world: World, engine: Engine, how: str
) -> None:
    worker = await world.worker(engine, name="mailer")
    first, second = await world.held(engine, worker), await world.held(engine, worker)
    await confirm(engine, worker, first, second)
    if how == "evicted":
        await evict(world, engine, worker)
    else:
        await world.worker(engine, name="mailer")
        await world.settle(engine)
    assert await world.state(first.id) is TaskState.RUNNING
    answer = await world.finish(engine, worker, second)
    assert isinstance(answer, Reported)
    assert await world.state(second.id) is TaskState.SUCCEEDED


async def test_a_worker_that_says_goodbye_has_stopped(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    await confirm(engine, worker, task)
    await engine.submit(DeregisterWorker(namespace=NAMESPACE, worker_id=worker))
    await world.settle(engine)
    assert await world.state(task.id) is TaskState.PENDING


async def test_much_exclusive_work_does_not_keep_the_rest_from_going_back(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine, slots=200)
    await world.add(engine, 70)
    tasks = await world.claim(engine, worker, max_tasks=70)
    for start in range(0, 50, 25):
        await confirm(engine, worker, *tasks[start : start + 25])
    await evict(world, engine, worker)
    assert [await world.state(each.id) for each in tasks[:50]] == [TaskState.RUNNING] * 50
    assert [await world.state(each.id) for each in tasks[50:]] == [TaskState.PENDING] * 20
    assert not (await world.view(worker)).worker.release_pending


async def test_after_a_crash_two_servers_give_exclusive_work_away_once(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine, slots=100)
    await world.add(engine, 30)
    tasks = await world.claim(engine, worker, max_tasks=30)
    await confirm(engine, worker, *tasks)
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await world.kill(engine)
    servers = [await _start(world), await _start(world)]
    await asyncio.gather(*(HeldRelease().run_once(each) for each in servers))
    for _ in range(4 * LEASE_MS // 500):
        await world.advance(500)
        for each in servers:
            await ServerTouch().run_once(each)
    await asyncio.gather(*(DueTasks().run_once(each) for each in servers))
    rows = await world.database.rows("SELECT state, attempt FROM tasks")
    assert {(row["state"], row["attempt"]) for row in rows} == {("pending", 1)}
    assert len((await world.dump("attempts"))["attempts"]) == 30


async def test_a_server_whose_clock_was_set_does_not_give_it_away_early(
    world: World, engine: Engine
) -> None:
    await world.watch(engine, LEASE_MS)
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    await confirm(engine, worker, task)
    await evict(world, engine, worker)
    await world.jump(60_000)
    await world.watch(engine, LEASE_MS - 1_000)
    await world.round(DueTasks(), engine)
    assert await world.state(task.id) is TaskState.RUNNING
    await world.watch(engine, 2_000)
    await world.round(DueTasks(), engine)
    assert await world.state(task.id) is TaskState.PENDING
