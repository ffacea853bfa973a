"""What a worker had done stays known when it goes offline, in whatever way, until it is purged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from tenure.core.worker.record import EndReason, WorkerMode
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.services.lease_judgement import LeaseJudgement
from tenure.engine.worker import command as c
from tests.engine.world import CURSOR_KEY, NAMESPACE, World

LEASE_MS: Final = 30_000
NAME: Final = "mailer-1"
End = Callable[[World, Engine, str], Awaitable[object]]


async def deregister(_world: World, engine: Engine, worker: str) -> None:
    await engine.submit(c.DeregisterWorker(namespace=NAMESPACE, worker_id=worker))


async def evict(_world: World, engine: Engine, worker: str) -> None:
    await engine.submit(c.EvictWorker(namespace=NAMESPACE, worker_id=worker))


async def supersede(world: World, engine: Engine, _worker: str) -> None:
    await world.worker(engine, name=NAME)


async def let_the_lease_end(world: World, engine: Engine, _worker: str) -> None:
    await world.watch(engine, 2 * LEASE_MS)
    await world.round(LeaseJudgement(), engine)


async def close_the_session(world: World, engine: Engine, worker: str) -> None:
    _, opened = await world.session(engine, worker)
    await world.watch(engine, LEASE_MS // 2)
    session_no = opened.worker.session_no
    close = c.CloseSession(namespace=NAMESPACE, worker_id=worker, session_no=session_no)
    await engine.submit(close)
    await world.watch(engine, 4_000)
    await world.round(LeaseJudgement(), engine)


async def fail_calls(world: World, engine: Engine, worker: str) -> None:
    await world.watch(engine, 2 * LEASE_MS)
    for _ in range(3):
        await engine.submit(c.FailCall(namespace=NAMESPACE, worker_id=worker))
    await world.round(LeaseJudgement(), engine)


@pytest.mark.parametrize(
    ("end", "mode", "reason"),
    [
        (deregister, WorkerMode.POLL, EndReason.DEREGISTERED),
        (evict, WorkerMode.POLL, EndReason.EVICTED),
        (supersede, WorkerMode.POLL, EndReason.SUPERSEDED),
        (let_the_lease_end, WorkerMode.POLL, EndReason.LEASE_EXPIRED),
        (close_the_session, WorkerMode.SESSION, EndReason.LEASE_EXPIRED),
        (fail_calls, WorkerMode.SERVED, EndReason.UNREACHABLE),
    ],
)
async def test_totals_of_a_worker_are_kept_however_it_goes_offline(
    world: World, engine: Engine, end: End, mode: WorkerMode, reason: EndReason
) -> None:
    worker = await world.worker(engine, mode=mode, name=NAME, lease_ms=LEASE_MS)
    await world.beat(engine, worker, 1, total_completed=10, total_failed=2)
    before = await world.view(worker)
    assert (before.total_completed, before.total_failed) == (10, 2)
    await end(world, engine, worker)
    after = await world.view(worker)
    assert (after.worker.end_reason, after.lease) == (reason, None)
    assert (after.total_completed, after.total_failed) == (10, 2)


async def test_the_list_shows_the_totals_of_live_and_of_offline_workers(
    world: World, engine: Engine
) -> None:
    gone, live = await world.worker(engine), await world.worker(engine)
    await world.beat(engine, gone, 1, total_completed=10, total_failed=2)
    await world.beat(engine, live, 1, total_completed=5)
    await evict(world, engine, gone)
    page = await query.list_workers(
        engine.store, namespace=NAMESPACE, page=query.PageRequest(cursor_key=CURSOR_KEY)
    )
    shown = {each.worker.id: (each.total_completed, each.total_failed) for each in page.items}
    assert shown == {gone: (10, 2), live: (5, 0)}


async def test_a_heartbeat_beside_the_end_of_its_worker_counts_or_is_refused(
    world: World, engine: Engine
) -> None:
    for _ in range(10):
        worker = await world.worker(engine)
        beat, _ = await asyncio.gather(
            world.beat(engine, worker, 1, total_completed=7),
            evict(world, engine, worker),
            return_exceptions=True,
        )
        counted = 7 if isinstance(beat, c.Renewed) else 0
        assert (await world.view(worker)).total_completed == counted
