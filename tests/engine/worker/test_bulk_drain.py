"""Draining all workers that match labels or a version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.worker.record import WorkerStatus
from tenure.engine.engine import Engine
from tenure.engine.worker import bulk_drain
from tenure.engine.worker import command as c
from tenure.errors import InvalidArgument, NotFound, Unavailable
from tenure.store.failure import Lost
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World


async def statuses(world: World, *workers: str) -> list[WorkerStatus]:
    return [(await world.view(each)).worker.status for each in workers]


async def drain(engine: Engine, **options: Any) -> tuple[str, ...]:
    return await bulk_drain.drain_matching(engine, **{"namespace": NAMESPACE, **options})


async def test_all_that_have_the_labels_drain_and_nobody_else(world: World, engine: Engine) -> None:
    matching = [await world.worker(engine, labels={"zone": "a", "n": str(n)}) for n in range(3)]
    others = [await world.worker(engine, labels={"zone": "b"}), await world.worker(engine)]
    foreign = await world.worker(engine, labels={"zone": "a"}, namespace=OTHER_NAMESPACE)
    assert set(await drain(engine, labels={"zone": "a"}, deadline_ms=1_234)) == set(matching)
    assert await statuses(world, *matching) == [WorkerStatus.DRAINING] * 3
    assert await statuses(world, *others) == [WorkerStatus.ONLINE] * 2
    (row,) = await world.database.rows(f"SELECT status FROM workers WHERE id = '{foreign}'")
    assert row["status"] == "online"
    view = await world.view(matching[0])
    assert view.worker.drain_at_ms == world.clock.now_ms() + 1_234


async def test_a_version_drains_its_workers_and_repeating_gives_the_same_answer(
    world: World, engine: Engine
) -> None:
    old = [await world.worker(engine, software_version="1") for _ in range(2)]
    await world.worker(engine, software_version="2")
    await engine.submit(c.DrainWorker(namespace=NAMESPACE, worker_id=old[0]))
    assert set(await drain(engine, version="1")) == set(old)
    assert set(await drain(engine, version="1")) == set(old)
    assert await drain(engine, version="3") == ()


async def test_more_workers_than_a_page_has_are_all_drained(world: World, engine: Engine) -> None:
    registered = await asyncio.gather(
        *(world.worker(engine, labels={"all": "yes"}) for _ in range(205))
    )
    drained = await drain(engine, labels={"all": "yes"})
    assert sorted(drained) == sorted(registered)
    rows = await world.database.rows("SELECT count(*) AS n FROM workers WHERE status = 'draining'")
    assert rows[0]["n"] == 205


async def test_who_went_offline_meanwhile_is_left_out(world: World, engine: Engine) -> None:
    gone, there = [await world.worker(engine, software_version="1") for _ in range(2)]
    # Its end is queued while the list is read, so in front of the drains.
    evict = c.EvictWorker(namespace=NAMESPACE, worker_id=gone)
    evictions: list[asyncio.Future[Any]] = []
    world.faults.call_at("list_workers", lambda: evictions.append(engine.submit(evict)))
    assert await drain(engine, version="1") == (there,)
    await evictions[0]
    assert await statuses(world, gone, there) == [WorkerStatus.OFFLINE, WorkerStatus.DRAINING]


async def test_a_store_that_goes_away_is_told_and_the_call_may_be_repeated(
    world: World, engine: Engine
) -> None:
    workers = [await world.worker(engine, software_version="1") for _ in range(2)]
    world.faults.raise_at("before COMMIT", Lost("cut"))
    with pytest.raises(Unavailable):
        await drain(engine, version="1")
    assert set(await drain(engine, version="1")) == set(workers)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "labels"),
        ({"labels": {}, "version": ""}, "labels"),
        ({"version": "1", "deadline_ms": 0}, "deadlineMs"),
        ({"version": "\0"}, "version"),
        ({"labels": {"a b": "c"}}, "labels"),
        ({"version": "1", "namespace": "a/b/c"}, "namespace"),
    ],
)
async def test_a_bad_request_is_refused_and_drains_nobody(
    world: World, engine: Engine, options: dict[str, Any], field: str
) -> None:
    worker = await world.worker(engine, software_version="1")
    with pytest.raises(InvalidArgument) as caught:
        await drain(engine, **options)
    assert caught.value.fields == {"field": field}
    assert await statuses(world, worker) == [WorkerStatus.ONLINE]


async def test_an_unknown_namespace_is_not_found(engine: Engine) -> None:
    with pytest.raises(NotFound):
        await drain(engine, version="1", namespace="nobody")
