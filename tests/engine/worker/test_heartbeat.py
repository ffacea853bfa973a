"""Heartbeats: tokens, totals, one row each, and what rides on them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.task.effect import Stop, StopCause
from tenure.core.task.record import TaskState
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.task.command import CancelTask
from tenure.engine.worker.command import EvictWorker, Renewed, TouchServer
from tenure.errors import TokenMismatch, WorkerInactive
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World, heartbeat, ref


async def lease(world: World, worker: str) -> Any:
    found = (await world.view(worker)).lease
    assert found is not None
    return found


async def test_a_heartbeat_renews_the_lease_and_returns_the_next_token(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    await world.advance(5_000)
    renewed = await world.beat(engine, worker, 1, active_count=3, loop_lag_ms=7, stuck_count=1)
    assert renewed.lease.token == 2
    assert renewed.lease.lease_until_ms == world.clock.now_ms() + 30_000
    assert renewed.lease == await lease(world, worker)
    assert (renewed.should_drain, renewed.cancel) == (False, ())
    assert (renewed.lease.active_count, renewed.lease.loop_lag_ms) == (3, 7)


async def test_a_worker_may_ask_for_another_lease(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    renewed = await world.beat(engine, worker, 1, lease_ms=60_000)
    assert renewed.lease.lease_until_ms == world.clock.now_ms() + 60_000


async def test_a_lease_that_a_heartbeat_asks_for_is_granted_within_the_limits(world: World) -> None:
    engine = await world.start(lease_least_ms=10_000, lease_most_ms=60_000)
    worker = await world.worker(engine)
    short = await world.beat(engine, worker, 1, lease_ms=1)
    long = await world.beat(engine, worker, 2, lease_ms=10**9)
    assert (short.lease.lease_ms, long.lease.lease_ms) == (10_000, 60_000)


@pytest.mark.parametrize("token", [0, 1, 3])
async def test_a_stale_token_changes_nothing_and_is_told_the_current_one(
    world: World, engine: Engine, token: int
) -> None:
    worker = await world.worker(engine)
    await world.beat(engine, worker, 1, completed_delta=4)
    before = await world.dump("leases")
    await world.advance(100)
    with pytest.raises(TokenMismatch) as caught:
        await world.beat(engine, worker, token, completed_delta=4)
    assert caught.value.fields == {"current_token": "2"}
    assert await world.dump("leases") == before


async def test_a_heartbeat_sent_twice_in_one_batch_counts_once(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    commands = [heartbeat(engine, worker, 1, completed_delta=5) for _ in range(3)]
    futures = [engine.submit(command) for command in commands]
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(answers[0], Renewed)
    assert [isinstance(each, TokenMismatch) for each in answers] == [False, True, True]
    found = await lease(world, worker)
    assert (found.token, found.total_completed) == (2, 5)


async def test_two_heartbeats_in_one_batch_with_following_tokens_both_count(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    futures = [
        engine.submit(heartbeat(engine, worker, token, completed_delta=1)) for token in (1, 2)
    ]
    await asyncio.gather(*futures)
    found = await lease(world, worker)
    assert (found.token, found.total_completed) == (3, 2)


async def test_totals_win_over_deltas_and_never_go_down(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    await world.beat(engine, worker, 1, completed_delta=2, failed_delta=1)
    await world.beat(engine, worker, 2, total_completed=9, completed_delta=5)
    await world.beat(engine, worker, 3, total_completed=4, total_failed=0)
    found = await lease(world, worker)
    assert (found.total_completed, found.total_failed) == (9, 1)


async def test_a_lost_answer_never_counts_twice(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    await world.beat(engine, worker, 1, completed_delta=3)
    with pytest.raises(TokenMismatch) as caught:
        await world.beat(engine, worker, 1, completed_delta=3)
    token = int(caught.value.fields["current_token"])
    await world.beat(engine, worker, token, total_completed=3)
    assert (await lease(world, worker)).total_completed == 3


async def test_an_unknown_ended_or_foreign_worker_is_inactive(world: World, engine: Engine) -> None:
    evicted = await world.worker(engine)
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=evicted))
    foreign = await world.worker(engine, namespace=OTHER_NAMESPACE)
    await world.settle(engine)
    before = await world.dump()
    reasons = []
    for worker in (world.clock.new_id(), evicted, foreign):
        with pytest.raises(WorkerInactive) as caught:
            await world.beat(engine, worker, 1)
        reasons.append(caught.value.fields["reason"])
    assert reasons == ["unknown", "evicted", "unknown"]
    assert await world.dump() == before


async def test_a_refused_heartbeat_disturbs_no_other(world: World, engine: Engine) -> None:
    good, bad = await world.worker(engine), await world.worker(engine)
    futures: list[asyncio.Future[Any]] = [
        engine.submit(heartbeat(engine, bad, 9)),
        engine.submit(heartbeat(engine, good, 1)),
        engine.submit(heartbeat(engine, world.clock.new_id(), 1)),
        engine.submit(TouchServer(server_id=engine.server_id)),
    ]
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(answers[0], TokenMismatch)
    assert isinstance(answers[1], Renewed)
    assert isinstance(answers[2], WorkerInactive)
    assert answers[3] == world.clock.now_ms()


@pytest.mark.parametrize("held", [0, 500])
async def test_a_heartbeat_writes_one_row_however_much_is_held(
    world: World, engine: Engine, held: int
) -> None:
    worker = await world.worker(engine, slots=1_000)
    if held:
        await world.add(engine, held)
        assert len(await world.claim(engine, worker, max_tasks=held)) == held
    before = await world.dump("tasks", "workers")
    world.faults.points.clear()
    await world.beat(engine, worker, 1, active_count=held)
    statements = [each for each in world.faults.points if "COMMIT" not in each]
    assert statements == (
        ["beat_leases"] if world.dialect == "sqlite" else ["now_ms", "beat_leases"]
    )
    assert await world.dump("tasks", "workers") == before


async def test_a_poll_worker_hears_of_cancels_and_the_grace_begins(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
    await world.advance(5)
    command = heartbeat(engine, worker, 1, wants_cancels=True)
    renewed, answer = await engine.heartbeat(command)
    assert (renewed.cancel, answer.stop) == ((ref(task),), ())
    await world.settle(engine)
    assert (await world.task(task.id)).progress.grace_at_ms == world.clock.now_ms()


async def test_deltas_ride_on_an_accepted_heartbeat(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    gone = TaskRef(world.clock.new_id(), 1)
    command = heartbeat(engine, worker, 1)
    renewed, answer = await engine.heartbeat(command, bound=(ref(task), gone))
    assert renewed.lease.token == 2
    assert answer.stop == (Stop(gone.task_id, 1, StopCause.LOST_LEASE),)
    assert await world.state(task.id) is TaskState.RUNNING


async def test_the_deltas_of_a_refused_heartbeat_do_not_count(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    before = await world.dump()
    with pytest.raises(TokenMismatch):
        await engine.heartbeat(heartbeat(engine, worker, 7), unbound=(ref(task),), held=())
    assert await world.dump() == before


async def test_after_a_mismatch_the_full_set_tells_what_was_lost(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    lost, kept = await world.running(engine, worker), await world.running(engine, worker)
    await world.advance(10)
    await world.beat(engine, worker, 1)
    command = heartbeat(engine, worker, 2)
    await world.advance(10)
    await engine.heartbeat(command, held=(ref(kept),))
    assert await world.state(lost.id) is TaskState.PENDING
    assert await world.state(kept.id) is TaskState.RUNNING


async def test_a_heartbeat_on_another_server_moves_the_worker_there(
    world: World, engine: Engine
) -> None:
    other = await world.start()
    worker = await world.worker(engine)
    await world.beat(other, worker, 1)
    assert (await lease(world, worker)).server_id == other.server_id
