"""Whole batches on two connections of PostgreSQL: what a judgement locks, and what it leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tenure.core.worker.judge_readiness import JudgeReadiness
from tenure.core.worker.record import WorkerStatus
from tenure.engine.batch import run as batch
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.clock import SystemClock
from tenure.engine.command import AnyCommand, WorkDone
from tenure.engine.settings import Settings
from tenure.engine.worker.command import JudgeLeases, OpenSession, SessionAnswer
from tenure.store.table import idempotency as idempotency_table
from tenure.store.table import lease as lease_table
from tenure.store.table import server as server_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.idempotency import Key
from tenure.store.table.lock_order import RowSets
from tenure.store.transaction import Position, Row, Tx
from tests.engine.world import Sink
from tests.store.rows import (
    NAMESPACE,
    NOW,
    add_workers,
    finished_from,
    held,
    insert,
    lease,
    server_id,
    stored_worker,
    task_id,
    worker,
    worker_id,
)
from tests.store.test_locks import BEAT, Act, Two, two

__all__ = ["two"]

CLOCK = SystemClock()
JUDGE = JudgeLeases(sighted_ms=60_000, amount=100)
# Not sighted for long enough: everybody is spared.
SPARE = JudgeLeases(sighted_ms=10, amount=100)


def runs(*commands: AnyCommand) -> Act[list[object]]:
    """Return a batch of these commands."""
    known = frozenset({NAMESPACE})
    context = batch.Context(CLOCK, server_id(3), Settings(), {}, known, ClaimPlan())

    async def act(tx: Tx) -> list[object]:
        return (await batch.run(tx, list(commands), context)).answers

    return act


def opening(number: int) -> OpenSession:
    return OpenSession(
        namespace=NAMESPACE, worker_id=worker_id(number), held=(), window=1, sink=Sink()
    )


def beats(*numbers: int) -> Act[int]:
    async def act(tx: Tx) -> int:
        given = [(worker_id(each), NAMESPACE, BEAT) for each in numbers]
        return len(await lease_table.beat_leases(tx, given, await tx.now_ms()))

    return act


async def suspect(two: Two, number: int) -> None:
    suspected = lease(number, suspect_until_ms=NOW)
    await two.first.transaction(lambda tx: lease_table.suspect_leases(tx, [suspected]))


async def test_who_opens_a_session_while_a_judgement_waits_stays_online(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    await suspect(two, 1)
    opened, judged = await two.overlap(runs(opening(1)), runs(JUDGE), second_waits=True)
    assert isinstance(opened[0], SessionAnswer)
    assert judged == [WorkDone(0)]
    assert (await stored_worker(two.first, 1)).status is WorkerStatus.ONLINE


async def test_a_worker_that_is_spared_can_be_renewed_meanwhile(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    judged, renewed = await two.overlap(runs(SPARE), beats(1), second_waits=False)
    assert (judged, renewed) == ([WorkDone(0)], 1)


class _Pausing:
    """A transaction that stops before a statement."""

    def __init__(self, tx: Tx, name: str, reached: asyncio.Event, go: asyncio.Event) -> None:
        self._tx = tx
        self._name = name
        self._reached = reached
        self._go = go

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def each(
        self, name: str, rows: Sequence[tuple[object, ...]], *shared: object
    ) -> Sequence[Row]:
        if name == self._name:
            self._reached.set()
            await self._go.wait()
        return await self._tx.each(name, rows, *shared)


async def test_a_judgement_that_spares_and_a_heartbeat_never_wait_for_each_other(two: Two) -> None:
    now_ms = CLOCK.now_ms()
    live = lease(2, lease_until_ms=now_ms + 10_000, beat_at_ms=now_ms)
    await add_workers(two.first, [worker(1), worker(2)], [lease(1), live])
    reached, go = asyncio.Event(), asyncio.Event()

    async def spare_and_open(tx: Tx) -> list[object]:
        pausing: Any = _Pausing(tx, "resume_leases", reached, go)
        return await runs(SPARE, opening(2))(pausing)

    async with asyncio.TaskGroup() as group:
        spared = group.create_task(two.first.transaction(spare_and_open))
        await reached.wait()
        # It renews the lease that is about to be resumed, then the one that was spared.
        assert await two.second.transaction(beats(2, 1)) == 2
        go.set()
    assert spared.result()[0] == WorkDone(0)
    assert isinstance(spared.result()[1], SessionAnswer)


async def test_a_load_that_has_to_wait_does_not_keep_a_server_from_judging(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    is_locked = asyncio.Event()

    async def lock(tx: Tx) -> None:
        await worker_table.lock_workers(tx, [worker_id(1)])
        is_locked.set()
        # Together with the 600 ms below it is more than a server may be silent.
        await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as group:
        group.create_task(two.first.transaction(lock))
        await is_locked.wait()
        mono_ms, now_ms = CLOCK.monotonic_ms(), CLOCK.now_ms()
        heard = JudgeReadiness(mono_ms - 60_000, mono_ms - 600, now_ms - 600)
        judging = replace(JUDGE, judge_readiness=heard)
        judged = group.create_task(two.second.transaction(runs(judging)))
    assert judged.result() == [WorkDone(1)]


async def test_a_worker_that_moves_to_a_server_does_not_make_it_a_silent_one(two: Two) -> None:
    now_ms = CLOCK.now_ms()

    async def touch(tx: Tx) -> None:
        seen = Position("1", 1)
        await server_table.touch_server(tx, server_id(1), now_ms=now_ms - 600_000, position=seen)
        await server_table.touch_server(tx, server_id(3), now_ms=now_ms, position=seen)

    await two.first.transaction(touch)
    leases = [lease(1), lease(2, server_id=server_id(3))]
    await add_workers(two.first, [worker(1), worker(2)], leases)
    await two.overlap(runs(opening(1)), runs(JUDGE), second_waits=True)
    assert (await stored_worker(two.first, 2)).status is WorkerStatus.OFFLINE


async def test_the_time_is_read_behind_a_task_that_another_server_has_finished(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    await insert(two.first, held(1))
    key = (NAMESPACE, task_id(1))
    finished_at_ms = 0
    is_finished = asyncio.Event()

    async def finish(tx: Tx) -> None:
        nonlocal finished_at_ms
        (task,) = await task_table.load_tasks(tx, [key])
        await task_table.finish_tasks(tx, [finished_from(task)])
        is_finished.set()
        await asyncio.sleep(0.3)
        finished_at_ms = round(time.time() * 1000)

    async def load(tx: Tx) -> RowSets:
        rows = RowSets()
        rows.receivers.wanted, rows.tasks.wanted = {worker_id(1)}, {key}
        await rows.load(tx)
        return rows

    async with asyncio.TaskGroup() as group:
        group.create_task(two.first.transaction(finish))
        await is_finished.wait()
        loading = group.create_task(two.second.transaction(load))
    rows = loading.result()
    assert key in rows.tasks
    assert rows.now_ms >= finished_at_ms


async def test_the_task_of_a_repeated_key_is_taken_from_what_is_remembered(two: Two) -> None:
    task = held(1)
    await insert(two.first, task)
    key = Key(NAMESPACE, "order", task.id, b"digest", None, is_task_live=True)
    await two.first.transaction(lambda tx: idempotency_table.insert_keys(tx, [key]))
    rows = RowSets()
    rows.keys.wanted.add((NAMESPACE, "order"))
    rows.tasks.cache = {(NAMESPACE, task.id): task}
    await two.first.transaction(rows.load)
    assert rows.tasks.cached == {(NAMESPACE, task.id)}
    assert rows.tasks[NAMESPACE, task.id] is task
