"""Rows that somebody keeps: only those that want them wait, and they are told to come again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from tenure.core.task.record import TaskState
from tenure.core.worker.record import WorkerMode
from tenure.engine.task.command import CancelTask
from tenure.engine.worker.command import Renewed
from tenure.errors import Unavailable
from tests.bounds import WAIT_S
from tests.engine.world import NAMESPACE, PostgresDatabase, World, heartbeat
from tests.polling import eventually


@pytest.fixture
def dialect(monkeypatch: pytest.MonkeyPatch) -> str:
    """SQLite has one writer: nobody keeps a row there."""
    monkeypatch.setattr("tenure.store.postgres.store.LOCK_WAIT_MS", 200)
    return "postgres"


@asynccontextmanager
async def kept(world: World, sql: str) -> AsyncIterator[None]:
    """Keep rows locked from another connection."""
    assert isinstance(world.database, PostgresDatabase)
    connection = await asyncpg.connect(world.database.dsn)
    try:
        async with connection.transaction():
            await connection.execute(sql)
            yield
    finally:
        await connection.close()


def task_rows(*ids: str) -> str:
    listed = ", ".join(f"'{each}'" for each in ids)
    return f"SELECT id FROM tasks WHERE id IN ({listed}) FOR UPDATE"


async def test_a_kept_row_delays_only_the_commands_that_want_it(world: World) -> None:
    engine = await world.start()
    ids = await world.add(engine, 20)
    locked = {ids[3], ids[11]}
    async with kept(world, task_rows(*locked)), asyncio.timeout(WAIT_S):
        futures = [engine.submit(CancelTask(namespace=NAMESPACE, task_id=each)) for each in ids]
        answers = await asyncio.gather(*futures, return_exceptions=True)
    for task_id, answer in zip(ids, answers, strict=True):
        if task_id in locked:
            assert isinstance(answer, Unavailable)
            assert answer.fields["reason"] == "conflict"
            assert await world.state(task_id) is TaskState.PENDING
        else:
            assert not isinstance(answer, BaseException)
            assert await world.state(task_id) is TaskState.CANCELLED
    for task_id in locked:
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task_id))
        assert await world.state(task_id) is TaskState.CANCELLED


async def test_a_kept_lease_delays_only_its_own_heartbeat(world: World) -> None:
    engine = await world.start()
    registered = [await world.register(engine) for _ in range(5)]
    locked = registered[2].worker.id
    sql = f"SELECT worker_id FROM leases WHERE worker_id = '{locked}' FOR UPDATE"
    async with kept(world, sql), asyncio.timeout(WAIT_S):
        beats = [
            engine.submit(heartbeat(engine, each.worker.id, each.lease.token))
            for each in registered
        ]
        answers = await asyncio.gather(*beats, return_exceptions=True)
    for each, answer in zip(registered, answers, strict=True):
        assert isinstance(answer, Unavailable if each.worker.id == locked else Renewed)
    await engine.submit(heartbeat(engine, locked, registered[2].lease.token))


async def test_a_kept_worker_delays_only_its_own_hand_outs(world: World) -> None:
    engine = await world.start()
    workers = [await world.worker(engine, mode=WorkerMode.SESSION) for _ in range(4)]
    sinks = {each: (await world.session(engine, each, window=1))[0] for each in workers}
    locked = workers[1]
    sql = f"SELECT id FROM workers WHERE id = '{locked}' FOR UPDATE"
    async with kept(world, sql), asyncio.timeout(WAIT_S):
        ids = await world.add(engine, 5)
        await eventually(lambda: all(sinks[each].given for each in workers if each != locked))
        assert not sinks[locked].given
    engine.look_for_work()
    await eventually(lambda: sinks[locked].given)
    given = [task.id for sink in sinks.values() for task in sink.given]
    assert len(given) == len(set(given)) == 4
    assert set(given) < set(ids)


async def test_a_batch_of_which_all_rows_are_kept_ends_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.engine.batch.split.LANE_SECONDS_MAX", 0.0)
    engine = await world.start()
    ids = await world.add(engine, 8)
    async with kept(world, task_rows(*ids)), asyncio.timeout(WAIT_S):
        futures = [engine.submit(CancelTask(namespace=NAMESPACE, task_id=each)) for each in ids]
        answers = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(each) for each in answers} == {Unavailable}
