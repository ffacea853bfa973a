"""The background services: one round each, and how they run by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.task.record import TaskState
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.service import Report, Service
from tenure.engine.services import all_services
from tenure.engine.services.claim_fallback import ClaimFallback
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.services.retention import Retention
from tenure.engine.services.server_row import ServerTouch
from tenure.engine.services.vacuum import Vacuum
from tenure.engine.task.command import FinishKind
from tenure.engine.worker.command import EvictWorker
from tenure.errors import NotFound, Unavailable
from tenure.store.failure import Lost
from tests.engine.world import DAY_MS, NAMESPACE, World


async def finished(world: World, engine: Engine, count: int) -> list[str]:
    worker = await world.worker(engine, slots=1_000)
    ids = await world.add(engine, count)
    for task in await world.claim(engine, worker, max_tasks=count):
        await world.finish(engine, worker, task)
    return ids


async def test_every_service_runs_a_round_on_an_empty_store(engine: Engine) -> None:
    for job in all_services():
        assert not (await job.run_once(engine)).has_more
        assert job.interval_ms(engine) > 0
    names = [job.name for job in all_services()]
    assert len(set(names)) == len(names)


async def test_a_server_s_row_is_made_once_and_touched_by_each_round(
    world: World, engine: Engine
) -> None:
    await ServerTouch().run_once(engine)
    started_at_ms = world.clock.now_ms()
    await world.advance(700)
    await ServerTouch().run_once(engine)
    (row,) = await world.database.rows("SELECT * FROM servers")
    assert str(row["id"]) == engine.server_id
    assert (row["started_at_ms"], row["touched_at_ms"]) == (started_at_ms, world.clock.now_ms())


class TestSightedness:
    async def test_a_server_is_sighted_from_its_first_touch_on(
        self, world: World, engine: Engine
    ) -> None:
        assert engine.sighted_ms == 0
        await world.watch(engine, 1_200)
        assert engine.sighted_ms == 1_200
        await world.advance(1_001)
        assert engine.sighted_ms == 0
        await world.watch(engine, 300)
        assert engine.sighted_ms == 300

    async def test_a_jump_of_the_store_s_clock_blinds_it(
        self, world: World, engine: Engine
    ) -> None:
        await world.watch(engine, 2_000)
        await world.jump(5_000)
        await ServerTouch().run_once(engine)
        assert engine.sighted_ms == 0

    async def test_a_heartbeat_lane_that_cannot_commit_is_blind(
        self, world: World, engine: Engine
    ) -> None:
        await world.watch(engine, 2_000)
        for _ in range(3):
            await world.advance(500)
            world.faults.raise_at("before COMMIT", Lost("cut"))
            with pytest.raises(Unavailable):
                await ServerTouch().run_once(engine)
        assert engine.sighted_ms == 0


class TestRetention:
    async def test_history_is_forgotten_after_a_week(self, world: World, engine: Engine) -> None:
        (old,) = await finished(world, engine, 1)
        await world.advance(4 * DAY_MS)
        (young,) = await finished(world, engine, 1)
        await world.advance(4 * DAY_MS)
        await Retention().run_once(engine)
        assert await world.state(young) is TaskState.SUCCEEDED
        with pytest.raises(NotFound):
            await world.task(old)

    async def test_ended_attempts_are_forgotten_with_their_time(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        await world.finish(engine, worker, task, FinishKind.RELEASED)
        await world.advance(8 * DAY_MS)
        await Retention().run_once(engine)
        assert (await world.dump("attempts"))["attempts"] == []
        assert await world.state(task.id) is TaskState.PENDING

    @pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
    async def test_sqlite_deletes_in_bounded_batches(self, world: World, engine: Engine) -> None:
        await finished(world, engine, 700)
        await world.advance(8 * DAY_MS)
        reports = [await Retention().run_once(engine) for _ in range(2)]
        assert [report.has_more for report in reports] == [True, False]
        assert (await world.dump("history"))["history"] == []

    @pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
    async def test_postgres_makes_the_days_to_come_and_drops_whole_days(
        self, world: World, engine: Engine
    ) -> None:
        await Retention().run_once(engine)
        today = world.clock.now_ms() // DAY_MS
        await world.advance(9 * DAY_MS)
        await Retention().run_once(engine)
        sql = (
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^history_[0-9]+$' "
            "ORDER BY relname"
        )
        days = [int(row["relname"].split("_")[1]) for row in await world.database.rows(sql)]
        assert days == [today + 2, today + 9, today + 10, today + 11]

    async def test_offline_workers_are_forgotten_after_a_day_unless_they_still_hold_work(
        self, world: World, engine: Engine
    ) -> None:
        gone, there = await world.worker(engine), await world.worker(engine)
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=gone))
        await world.settle(engine)
        releasing = await world.worker(engine)
        await world.database.execute(
            "UPDATE workers SET status = 'offline', end_reason = 'evicted', release_pending = "
            f"(1 = 1), ended_at_ms = {world.clock.now_ms()} WHERE id = '{releasing}'"
        )
        await world.advance(DAY_MS + 1)
        await Retention().run_once(engine)
        rows = await world.database.rows("SELECT id FROM workers")
        assert {str(row["id"]) for row in rows} == {there, releasing}

    async def test_rows_of_servers_that_are_gone_are_forgotten(
        self, world: World, engine: Engine
    ) -> None:
        await ServerTouch().run_once(engine)
        await world.advance(DAY_MS + 1)
        other = await world.start()
        await ServerTouch().run_once(other)
        await Retention().run_once(other)
        rows = await world.database.rows("SELECT id FROM servers")
        assert [str(row["id"]) for row in rows] == [other.server_id]


class TestVacuum:
    async def test_it_comes_after_so_many_finished_tasks(self, world: World) -> None:
        engine = await world.start(vacuum_every_tasks=3)
        vacuum = Vacuum()
        await finished(world, engine, 2)
        assert (await vacuum.run_once(engine)).count == 0
        await finished(world, engine, 2)
        assert engine.finished_count == 4
        assert (await vacuum.run_once(engine)).count == 4
        assert (await vacuum.run_once(engine)).count == 0

    async def test_it_can_be_switched_off(self, world: World) -> None:
        engine = await world.start(vacuum_every_tasks=1, own_vacuum=False)
        await finished(world, engine, 2)
        assert (await Vacuum().run_once(engine)).count == 0


async def test_the_fallback_touches_every_queue_for_which_somebody_waits(
    world: World, engine: Engine
) -> None:
    other = await world.start()
    polls = []
    for queue in ("a", "b"):
        worker = await world.worker(engine, queue=queue)
        polls.append(world.poll(engine, worker, queue=queue))
    await world.settle(engine)
    for queue in ("a", "b"):
        await world.add(other, queue=queue)
    await world.advance(1_000)
    await world.round(ClaimFallback(), engine)
    assert [len(await poll) for poll in polls] == [1, 1]


async def test_a_release_round_with_nothing_to_release_is_empty(
    world: World, engine: Engine
) -> None:
    await world.worker(engine)
    assert await HeldRelease().run_once(engine) == Report()


class Flaky:
    """A job that fails in several ways before it works."""

    name = "flaky"

    def __init__(self, done: Any, *errors: Exception) -> None:
        self._errors = list(errors)
        self._done = done

    def interval_ms(self, engine: Engine) -> int:
        del engine
        return 1

    async def run_once(self, engine: Engine) -> Report:
        del engine
        if self._errors:
            raise self._errors.pop(0)
        if not self._done.done():
            self._done.set_result(True)
        return Report()


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_a_failing_round_never_stops_the_next(engine: Engine) -> None:
    done = asyncio.get_running_loop().create_future()
    errors = (Lost("cut"), Unavailable(reason="x", retry_after_ms=1), ZeroDivisionError())
    job = Flaky(done, *errors)
    task = asyncio.create_task(Service(job, engine).serve())
    try:
        async with asyncio.timeout(5):
            assert await done
    finally:
        task.cancel()


async def test_counts_of_queues_are_read(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    await world.add(engine, 3)
    await world.claim(engine, worker, max_tasks=1)
    view = await query.get_queue(engine.store, namespace=NAMESPACE, name="default")
    assert (view.count(TaskState.PENDING), view.count(TaskState.DISPATCHED)) == (2, 1)
